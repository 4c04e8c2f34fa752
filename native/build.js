// Written by scripts/build-native.mjs: what the addon has to be built from.
export const BUILD = 'd0526aba902f1061';
