// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '57187fd8af955ad3';
