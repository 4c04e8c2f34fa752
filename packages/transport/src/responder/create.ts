/** Makes the responder of a queue pair, by its service. */
import type { Core } from '../core.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import type { QueuePair } from '../qp.ts';
import { RcResponder } from './rc.ts';
import type { Responder } from './responder.ts';
import { UcResponder } from './uc.ts';
import { UdResponder } from './ud.ts';

export function createResponder(core: Core, qp: QueuePair, receives: ReceiveQueue): Responder {
  if (qp.type === 'RC') return new RcResponder(core, qp, receives);
  if (qp.type === 'UC') return new UcResponder(core, qp, receives);
  return new UdResponder(core, qp, receives);
}
