/** The packet in hand: made once for an adapter, filled for each packet that passed the header's checks. */
import { type OpcodeInfo, opcodeInfo } from '@node-roce/wire';
import { RxBatch } from './batch.ts';

const NOTHING = new RxBatch(0, 0);

export class InboundPacket {
  /** The opcode's row of the table. */
  info: OpcodeInfo = opcodeInfo(0) as OpcodeInfo;
  /** Where it lies: the batch's slab, and the offset of the BTH in it. */
  slab: Uint8Array = new Uint8Array(0);
  at = 0;
  psn = 0;
  /** Bytes after the headers, pad not counted. */
  payload = 0;
  /** Its slot in the batch: what the link knows of it. */
  batch: RxBatch = NOTHING;
  index = 0;
}
