/** rdma_cm in JavaScript: connections by address. */
export type { Timing } from '@node-roce/cm';
export type { SocketAddress } from './addresses.ts';
export {
  type AnswerOptions,
  answerRequests,
  Client,
  type ClientOptions,
  type RequestOptions,
} from './client.ts';
export { CmId } from './cm-id.ts';
export { type ConnectOptions, connect, Listener, type ListenOptions, listen } from './connect.ts';
export { ConnectionStream, type StreamOptions } from './connection-stream.ts';
export { RDMA_UDP_QKEY } from './datagram.ts';
export type { DeviceOptions } from './devices.ts';
export { RefusedError } from './errors.ts';
export { type CmIdEvent, EventChannel } from './event-channel.ts';
export type { CmEventName, IdEvent, IdEventChannel } from './events.ts';
export type { CmIdState, ConnectionRequest, DatagramPeer, PeerTerms } from './id-types.ts';
export { type ConnectionEvents, MessageConnection } from './message-connection.ts';
export type { MessageOptions } from './message-options.ts';
export type { ConnectionParameters, IdOptions, PortSpaceName } from './parameters.ts';
export type { StreamChannel } from './stream-channel.ts';
export { Table, type TableOptions } from './table.ts';
export type { StreamPair } from './web-streams.ts';
