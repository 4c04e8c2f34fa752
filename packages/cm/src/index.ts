/** The RDMA connection manager, sans-IO. */
export * from './connections.ts';
export * from './intervals.ts';
export * from './parameters.ts';
export { aprStatusName, rejectReasonName, sidrStatusName } from './reasons.ts';
export { repliedQpn, type ServiceName, serviceOf } from './transport.ts';
