/** Sockets over RDMA: the rsockets of librdmacm as Node streams. */
export type { StreamOptions } from '@node-roce/rdmacm';
export { type CreateConnectionOptions, createConnection } from './connecting.ts';
export { IoMapping } from './mappings.ts';
export type { BufferOptions } from './parts.ts';
export { RsocketServer } from './server.ts';
export { RSocket } from './socket.ts';
export {
  type ConnectOptions,
  connect,
  createServer,
  type ListenOptions,
  listen,
} from './sockets.ts';
