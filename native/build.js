// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '776a50a7031fdc10';
