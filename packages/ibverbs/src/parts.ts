/** The structs of C and what verbs-api has for them, for the device of `roce run`: its programs speak the former, it the latter. */
export { fromAhAttr, toAhAttr } from './address.ts';
export { portAttr } from './device.ts';
export { deviceAttr, tagCaps } from './device-attr.ts';
export { inCNames } from './errno.ts';
export { EVENT_CODES } from './events.ts';
export { IGNORED_ACCESS } from './memory.ts';
export { fromCap, fromQpAttr, masked, namesOf, toCap } from './qp-attr.ts';
export { MAX_TAG_OPS } from './tag-matching.ts';
