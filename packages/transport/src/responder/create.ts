/** Makes the responder of a queue pair, by its service. */
import type { Context } from '../context.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import { RcResponder } from './rc.ts';
import type { Responder } from './responder.ts';
import { UcResponder } from './uc.ts';
import { UdResponder } from './ud.ts';

export function createResponder(context: Context, owner: Owner, receives: ReceiveQueue): Responder {
  if (owner.type === 'RC') return new RcResponder(context, owner, receives);
  if (owner.type === 'UC') return new UcResponder(context, owner, receives);
  return new UdResponder(context, owner, receives);
}
