/** Parts of the verbs for the other packages of node-roce. */
export { addressVector } from './address-vector.ts';
export { connectAttributes, takenBy } from './connection.ts';
export { LINK_KIND } from './option-types.ts';
