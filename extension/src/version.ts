// The front end's version, sent to the kernel in `hello`. A test keeps it equal to package.json's.
export const VERSION = '0.2.0';
