/** librdmacm's functions under their own names. */
export * from './connection.ts';
export * from './constants.ts';
export * from './events.ts';
export * from './id.ts';
export { rdma_cm_id, rdma_event_channel } from './ids.ts';
export type * from './structs.ts';
