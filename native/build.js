// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '66ccc4556f59f57e';
