// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '5d7904b5f834fae2';
