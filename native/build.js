// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '9a00476dc5ad5085';
