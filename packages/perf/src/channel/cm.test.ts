import { MemoryNetwork } from '@node-roce/link';
import { CmId } from '@node-roce/rdmacm';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';
import { CmChannel } from './cm.ts';

const [OURS, THEIRS] = ['10.0.0.1', '10.0.0.2'];
const patience = { timeout: 120, signal: new AbortController().signal };

test('a message to a peer that has left fails with that', async () => {
  const network = new MemoryNetwork();
  await using ours = await openDevice({ link: network.link(OURS) });
  await using theirs = await openDevice({ link: network.link(THEIRS) });
  await using listener = new CmId({ device: ours });
  await listener.listen({ address: OURS, port: 1 });
  const destination = { host: OURS, port: 1, source: THEIRS };
  const [channel, peer] = await Promise.all([
    CmChannel.accept(listener, patience),
    CmChannel.call(theirs, destination, patience),
  ]);
  await peer.destroy();
  await channel.untilEnded(120_000);
  const expected = { code: 'ERR_ROCE_EXCHANGE', message: 'the peer ended the connection of the dialogue' };
  await expect(channel.write(new Uint8Array(4))).rejects.toMatchObject(expected);
  await channel.destroy();
});
