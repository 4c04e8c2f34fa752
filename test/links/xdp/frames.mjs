/**
 * Sends Ethernet frames by an interface. Argument: JSON with `interface`. Lines of JSON out: `ready`, then `sent` for each line in;
 * in: `frames`, a list of them in base64.
 */
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { FrameSocket, layout } from '@node-roce/dgram-native';

const { interface: name } = JSON.parse(process.argv[2]);
const { Tx, Fragment, TX_SLOT_WORDS, FRAGMENT_WORDS } = layout;
const socket = new FrameSocket({ interface: name });
const say = (type) => console.log(JSON.stringify({ type }));

async function send(frames) {
  const slots = new Uint32Array(frames.length * TX_SLOT_WORDS);
  const fragments = new Uint32Array(frames.length * FRAGMENT_WORDS);
  const memory = new Uint8Array(Buffer.concat(frames));
  let offset = 0;
  for (const [i, frame] of frames.entries()) {
    slots[i * TX_SLOT_WORDS + Tx.FRAGMENT_FIRST] = i;
    slots[i * TX_SLOT_WORDS + Tx.FRAGMENT_COUNT] = 1;
    fragments[i * FRAGMENT_WORDS + Fragment.OFFSET_LOW] = offset;
    fragments[i * FRAGMENT_WORDS + Fragment.LENGTH] = frame.length;
    offset += frame.length;
  }
  for (let from = 0; from < frames.length; ) {
    from = socket.send(slots, fragments, from, frames.length, [memory]);
    if (from < frames.length) await sleep(1);
  }
  const failed = frames.findIndex((_, i) => slots[i * TX_SLOT_WORDS + Tx.STATUS] !== 0);
  if (failed >= 0) throw new Error(`frame ${failed}: errno ${slots[failed * TX_SLOT_WORDS + Tx.STATUS]}`);
}

say('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const { frames } = JSON.parse(line);
  await send(frames.map((frame) => Buffer.from(frame, 'base64')));
  say('sent');
}
