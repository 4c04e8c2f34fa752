// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '1b6e58e8db7cc397';
