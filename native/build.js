// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = '4665441007809976';
