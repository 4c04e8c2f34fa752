/** Ids of ours, with queue pairs and memory, that speak with the programs of rdmacm-utils; and the objects that remain of those in the guest. */
import { CmId, type IdOptions } from '@node-roce/rdmacm';
import {
  type CompletionQueue,
  GRH_BYTES,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type SharedReceiveQueue,
} from '@node-roce/verbs-api';
import type { Guest, GuestAddress } from './guest.ts';
import { sampled } from './pairwise.ts';

export type IpVersion = 4 | 6;

/** One program in one role, over one address family. */
export interface CmCase {
  tool: string;
  role: string;
  version: IpVersion;
}

/** Cases by tool and role, each over both address families but for those that a tool can't play, or the sample of this run. */
export const cmCases = (
  tools: Readonly<Record<string, readonly string[]>>,
  can: (wanted: CmCase) => boolean = () => true,
): readonly CmCase[] =>
  sampled(
    Object.entries(tools)
      .flatMap(([tool, roles]) =>
        roles.flatMap((role) => ([4, 6] as const).map((version) => ({ tool, role, version }))),
      )
      .filter(can),
  );

/** Addresses of both ends. */
export const placeOf = (address: GuestAddress, version: IpVersion): { ours: string; theirs: string } =>
  version === 4
    ? { ours: address.hostIp4, theirs: address.ip4 }
    : { ours: address.hostIp6, theirs: address.ip6 };

/** Waits until the guest has a listener of the connection manager at this port. */
export const guestListens = (guest: Guest, port: number) =>
  guest.must(
    `for i in $(seq 80); do rdma res show cm_id | grep -q 'LISTEN.*:${port}' && exit 0; sleep 0.1; done; rdma res show cm_id; exit 1`,
  );

/** A side of a connection: its id, queue pair, memory, and receives in order. */
export interface Side extends AsyncDisposable {
  id: CmId;
  qp: QueuePair;
  mr: MemoryRegion;
  size: number;
  arriving: Promise<{ byteLen: number; immData: number | undefined }>[];
}

/** A queue pair with so many receives of a size posted; on an SRQ, which has to have them, if there is one. */
export async function equip(
  id: CmId,
  receives: number,
  size: number,
  srq?: { pd: ProtectionDomain; queue: SharedReceiveQueue },
): Promise<Side> {
  const pd = srq?.pd ?? (await id.device.allocPd());
  const cq: CompletionQueue = await id.device.createCq(4 * receives + 16);
  const qp = await id.createQp(pd, {
    sendCq: cq,
    cap: { maxSendWr: receives + 2, maxRecvWr: receives + 1 },
    ...(srq ? { srq: srq.queue } : {}),
  });
  const slot = size + GRH_BYTES;
  const mr = await pd.registerMr(new Uint8Array((receives + 1) * slot), { access: { remoteRead: true } });
  const arriving = srq
    ? []
    : Array.from({ length: receives }, (_, i) => qp.receive({ mr, offset: i * slot, length: slot }));
  for (const promise of arriving) promise.catch(() => {});
  return {
    ...{ id, qp, mr, size, arriving },
    async [Symbol.asyncDispose]() {
      await id.destroy();
      await mr.deregister();
      await cq.destroy();
      if (!srq) await pd.dealloc();
    },
  };
}

/** A message of a side: the range behind its receives. */
export const messageOf = (side: Side) => ({
  mr: side.mr,
  offset: side.arriving.length * (side.size + GRH_BYTES),
  length: side.size,
});

/** An id of ours with its route resolved. */
export async function initiator(
  { ours, theirs }: { ours: string; theirs: string },
  port: number,
  options: IdOptions = {},
): Promise<CmId> {
  const id = new CmId(options);
  await id.resolveAddr({ host: theirs, port, source: ours });
  await id.resolveRoute();
  return id;
}

export async function listener(
  { ours }: { ours: string },
  port: number,
  options: IdOptions & { backlog?: number } = {},
): Promise<CmId> {
  const { backlog = 128, ...others } = options;
  const id = new CmId(others);
  await id.listen({ address: ours, port, backlog });
  return id;
}

/** Objects of the guest's rxe, by kind. */
export async function guestResources(guest: Guest): Promise<Record<string, number>> {
  const text = await guest.must('rdma res show dev rxe0');
  return Object.fromEntries(
    [...text.matchAll(/(\w+) (\d+)/g)].map(([, kind, count]) => [kind, Number(count)]),
  );
}
