// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '97949178b60296e0';
