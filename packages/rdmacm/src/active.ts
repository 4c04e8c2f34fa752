/** The initiator's side of an id: REQ, and the steps of its queue pair once REP has come. */
import type { CmFields } from '@node-roce/wire';
import { ask } from './datagram.ts';
import type { IdCore } from './id-core.ts';
import { peerTerms } from './negotiation.ts';
import type { ConnectionParameters } from './parameters.ts';

/** rdma_connect(3): resolves when both sides are ready, or the datagram service has answered. */
export async function connectId(
  id: IdCore,
  parameters: ConnectionParameters,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (id.state !== 'ROUTE_RESOLVED') throw id.wrongState('resolveRoute first');
  id.checkDepths(parameters);
  signal?.throwIfAborted();
  const { qp } = id.fields;
  if (!qp) throw id.wrongState('createQp first');
  id.state = 'CONNECTING';
  const { endpoint } = id;
  const begin = () =>
    id.isDatagram
      ? ask(id, parameters)
      : endpoint.call('cmConnect', id.terms.request(id.portSpace, qp, parameters));
  await id.settled(
    endpoint.open(begin, (number) => id.attach(number)),
    signal,
  );
}

/** REP came: the queue pair goes to RTS, then RTU is sent. */
export async function responded(id: IdCore, reply: CmFields<'REP'>): Promise<void> {
  const { fields } = id;
  const { qp } = fields;
  if (!qp || id.state !== 'CONNECTING') return;
  await id.agreeOnCredits(qp, reply);
  const { rtr, rts } = id.terms.initiatorSteps(qp, reply);
  await qp.modify(rtr);
  await qp.modify(rts);
  fields.replyData = reply.privateData;
  fields.reply = peerTerms(rtr.destQpNum!, reply);
  await id.endpoint.call('cmReady', id.number!);
  id.connected();
}
