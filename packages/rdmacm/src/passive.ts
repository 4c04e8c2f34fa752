/** The listener's side of an id: takes requests at one place or at all, and accepts or refuses one. */
import type { QueuePair, RoceError, XrcTarget } from '@node-roce/verbs-api';
import { ipCmServiceId, PortSpace } from '@node-roce/wire';
import { answer, refuse } from './datagram.ts';
import { Endpoint } from './endpoint.ts';
import { PortTakenError, portTaken } from './errors.ts';
import type { IdCore, IdFields } from './id-core.ts';
import type { RequestTerms, WaitingRequest } from './incoming.ts';
import { Listening, type Place } from './listening.ts';
import type { ConnectionParameters } from './parameters.ts';
import type { Path } from './path.ts';

/** Ports that are drawn until one is free. */
const MAX_PORT_TRIES = 100;

/** Makes the id of a request. */
type MakeId = (request: WaitingRequest, place: Place) => IdFields;

// ------------------------------------------------------------------- listening

/** rdma_listen(3), at a place that may still have to be bound. */
export async function listenId(
  id: IdCore,
  place: { address: string | undefined; port: number; backlog: number },
  makeId: MakeId,
): Promise<void> {
  await id.binds(async () => {
    const { path } = id;
    await path.bind(place.address, place.port);
    if (path.device) id.joins();
    for (let tries = 1; ; tries++) {
      id.checkAlive();
      try {
        await listenTo(id, place.backlog, makeId);
        return;
      } catch (error) {
        const isTaken = error instanceof PortTakenError;
        if (!isTaken || tries === MAX_PORT_TRIES || !path.redraw()) throw error;
      }
    }
  });
}

/** Listens at its place, or at each one that its address stands for. */
async function listenTo(id: IdCore, backlog: number, makeId: MakeId): Promise<void> {
  const { channel } = id.options;
  const listening = new Listening<IdFields>({
    service: id.isDatagram ? undefined : id.isXrc ? 'XRC' : 'RC',
    makeId,
    onRequest:
      channel && ((request) => channel.push({ event: 'CONNECT_REQUEST', id: request, listenId: id.fields })),
    onRemoval: (reason) => id.removed(reason),
  });
  try {
    if (id.path.device) await listenAt(id, listening, id.path, backlog);
    else await listenEverywhere(id, listening, backlog);
    // At once after that, or `destroy` would not find the listener.
    id.checkAlive();
    id.listening = listening;
    id.state = 'LISTEN';
  } catch (error) {
    await listening.close(error);
    throw error;
  }
}

async function listenAt(
  id: IdCore,
  listening: Listening<IdFields>,
  path: Path,
  backlog: number,
): Promise<void> {
  const endpoint = Endpoint.of(path.device!);
  const service = ipCmServiceId(PortSpace[id.portSpace], path.local!.port);
  const number = await endpoint.call('cmListen', service, backlog).catch((error: RoceError) => {
    throw error.errno === 'EADDRINUSE' ? portTaken(path.local!, error) : error;
  });
  listening.add(path, endpoint, number, path === id.path);
}

async function listenEverywhere(id: IdCore, listening: Listening<IdFields>, backlog: number): Promise<void> {
  const failures: RoceError[] = [];
  for (const path of id.path.everywhere()) {
    try {
      const isOpen = await opened(path, failures);
      id.checkAlive();
      if (isOpen) await listenAt(id, listening, path, backlog);
    } catch (error) {
      await path.release();
      throw error;
    }
  }
  const [first] = failures;
  if (!first) return;
  if (listening.isEmpty) throw first;
  const { port } = id.path.local!;
  const reasons = failures.map(({ message }) => message).join('; ');
  process.emitWarning(`the listener at port ${port} leaves addresses out: ${reasons}`, {
    type: 'RoceWarning',
    code: 'ROCE_LISTEN_ADDRESS',
  });
}

/** Opens the device of a path, or notes why its address can't be listened to. */
async function opened(path: Path, failures: RoceError[]): Promise<boolean> {
  try {
    await path.open();
    return true;
  } catch (error) {
    const { errno } = error as RoceError;
    // Another program has the UDP port, or the address is not usable yet.
    if (errno !== 'EADDRINUSE' && errno !== 'EADDRNOTAVAIL') throw error;
    failures.push(error as RoceError);
    await path.release();
    return false;
  }
}

/** rdma_get_request(3). */
export async function getRequest(id: IdCore, signal: AbortSignal | undefined): Promise<IdFields> {
  if (id.listening) id.checkDevice();
  if (id.state !== 'LISTEN') throw id.wrongState('listen first');
  return id.listening!.next(signal);
}

// --------------------------------------------------------------------- requests

/** rdma_accept(3): resolves when both sides are ready; of a datagram service, once the answer is sent. */
export async function accept(
  id: IdCore,
  parameters: ConnectionParameters,
  signal: AbortSignal | undefined,
): Promise<void> {
  const end = id.ownEnd;
  if (id.state !== 'CONNECT_REQUEST') throw id.wrongState('a request');
  id.checkDepths(parameters);
  if (!end) throw id.wrongState(id.isXrc ? 'createTarget first' : 'createQp first');
  signal?.throwIfAborted();
  id.take();
  if (id.isDatagram) {
    await answer(id, end.qpNum, parameters);
    return;
  }
  id.state = 'CONNECTING';
  await id.settled(reply(id, end, parameters), signal);
}

/** Takes the queue pair to RTR, and sends REP. */
async function reply(
  id: IdCore,
  end: QueuePair | XrcTarget,
  parameters: ConnectionParameters,
): Promise<void> {
  const message = id.message!;
  const answered = id.terms.reply(end, id.fields.request!, parameters);
  if (end.type !== 'XRC_TGT') await id.agreeOnCredits(end, message);
  await end.modify(id.terms.listenerSteps(end, message).rtr);
  await id.endpoint.call('cmAccept', id.number!, answered);
}

/** RTU came, or data: the queue pair goes to RTS. */
export async function toRts(id: IdCore, message: RequestTerms): Promise<void> {
  const end = id.ownEnd;
  if (!end || id.state !== 'CONNECTING') return;
  await end.modify(id.terms.listenerSteps(end, message).rts);
  id.connected();
}

/** rdma_reject(3). */
export async function reject(
  id: IdCore,
  privateData: Uint8Array | undefined,
  reason: number | undefined,
): Promise<void> {
  if (id.state !== 'CONNECT_REQUEST') throw id.wrongState('a request');
  id.take();
  if (id.isDatagram) await refuse(id, privateData);
  else await id.endpoint.call('cmReject', id.number!, { privateData, reason });
  id.over();
}
