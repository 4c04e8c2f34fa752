/** The socket of both sides. */
import { ConnectionStream } from '@node-roce/rdmacm';

/** A socket of librdmacm's rsockets: as a socket of `node:net`, over RDMA. */
export class RSocket extends ConnectionStream {}
