// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = 'f0177516b9051924';
