/** What a socket calls its connection by. */
import type { StreamChannel } from '@node-roce/rdmacm';
import type { IoMapping } from './mappings.ts';

/** Calls of a socket to its connection. */
export interface RsocketCalls extends StreamChannel {
  /** Whether the connection has been made. */
  readonly isOpen: boolean;
  iomap(bytes: Uint8Array, offset: bigint): Promise<IoMapping>;
  iowrite(bytes: Uint8Array, offset: bigint): Promise<void>;
}
