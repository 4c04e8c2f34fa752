// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '9e5fbd17ff2277ec';
