// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = 'f687e87a94bbf71a';
