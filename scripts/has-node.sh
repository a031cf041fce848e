# Status 0 where `node` is on the PATH and is version 20 or newer, which the front end's build tools need.
major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null) && [ "$major" -ge 20 ]
