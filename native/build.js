// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '69e05f0b5e8668b0';
