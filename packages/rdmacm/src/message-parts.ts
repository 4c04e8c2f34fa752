/** The verbs objects of a message connection: made before it connects, and destroyed with it. */
import {
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  RoceError,
} from '@node-roce/verbs-api';
import type { Sizes } from './agreement.ts';
import type { CmId } from './cm-id.ts';

/** The verbs objects of a connection. */
export interface Made {
  pd?: ProtectionDomain;
  cq?: CompletionQueue;
  qp?: QueuePair;
  inbox?: MemoryRegion;
  outbox?: MemoryRegion;
}

/** Parts that `releaseParts` destroys: regions that are published to the peer, too. */
interface Released extends Omit<Made, 'qp'> {
  published?: Iterable<Promise<MemoryRegion>>;
}

/** Creates them one after the other; those that there are when it rejects are in `made`. */
export async function makeParts(id: CmId, { slots, maxMessage }: Sizes, made: Made): Promise<void> {
  const pd = await id.device.allocPd();
  made.pd = pd;
  const cq = await id.device.createCq(4 * slots + 4);
  made.cq = cq;
  // A probe is not one of the messages.
  made.qp = await id.createQp(pd, { sendCq: cq, cap: { maxSendWr: slots + 2, maxRecvWr: slots } });
  made.inbox = await pd.registerMr(memoryOf(slots * maxMessage));
  made.outbox = await pd.registerMr(memoryOf(slots * maxMessage));
}

function memoryOf(bytes: number): Uint8Array {
  try {
    return new Uint8Array(new SharedArrayBuffer(bytes));
  } catch (cause) {
    throw new RoceError('ERR_ROCE_LIMIT', `slots × maxMessage: no room for twice ${bytes} bytes`, {
      errno: 'ENOMEM',
      attribute: 'maxMessage',
      expected: 'fewer slots, or smaller messages',
      cause,
    });
  }
}

/** Destroys all but the queue pair, which is its id's. Parts that the program still uses stay. */
export async function releaseParts({ inbox, outbox, cq, pd, published = [] }: Released): Promise<void> {
  const ignore = () => {}; // EBUSY: windows on the regions, or regions in the domain.
  for (const region of published) await region.then((each) => each.deregister()).catch(ignore);
  await inbox?.deregister().catch(ignore);
  await outbox?.deregister().catch(ignore);
  await cq?.destroy().catch(ignore);
  await pd?.dealloc().catch(ignore);
}
