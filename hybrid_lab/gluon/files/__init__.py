"""What saves and loads in gluon: parameters, states, registered classes, downloads."""
