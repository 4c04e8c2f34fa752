/** Makes the responder of a queue pair, by its service. */
import type { Context } from '../context.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import type { XrcDomain } from '../xrc/domain.ts';
import { NoResponder } from './none.ts';
import { RcResponder } from './rc.ts';
import type { Responder } from './responder.ts';
import { UcResponder } from './uc.ts';
import { UdResponder } from './ud.ts';

/** @param domain of an XRC target queue pair */
export function createResponder(
  context: Context,
  owner: Owner,
  receives: ReceiveQueue,
  domain: XrcDomain | undefined,
): Responder {
  if (owner.type === 'RC' || owner.type === 'XRC_TGT') {
    return new RcResponder(context, owner, receives, domain);
  }
  if (owner.type === 'XRC_INI') return new NoResponder(owner);
  if (owner.type === 'UC') return new UcResponder(context, owner, receives);
  return new UdResponder(context, owner, receives);
}
