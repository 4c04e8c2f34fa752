// Compares a reliable connection of your own with node-roce's model, over networks that are bad on purpose:
//
//   node interop-suite.mjs        seeds 1 to 20; one that fails leaves its packets, for example in interop-suite-17.pcapng
//   node interop-suite.mjs 17     runs that one again
import { writeFileSync } from 'node:fs';
import {
  ARENA_BYTES,
  aeth,
  bth,
  captureOf,
  createRandom,
  EngineEndpoint,
  expectPacket,
  MixedWorkload,
  Pair,
} from '@node-roce/sim';

// Put your device here: an object with the methods of `Endpoint`. This one is node-roce's own.
const makeDevice = (options) => new EngineEndpoint(options);

/** A packet that is lost draws one NAK, which names the PSN that is missing; then the rest arrives. */
function lostPacketDrawsOneNak() {
  const drop = (_packet, index) => index === 1;
  const { a, b, network } = new Pair({ a: 'model', b: makeDevice, psn: 100, aToB: { drop } });
  b.postReceive({ wrId: 1, offset: 0, length: 4096 });
  a.postSend({ wrId: 2, opcode: 'SEND', offset: 0, length: 4096 });
  network.run(() => a.pollSend().length > 0);
  const answers = network.trace.filter((p) => p.event === 'sent' && p.source === b.gid);
  expectPacket(answers[0].bytes, bth({ opcode: 'RC_ACKNOWLEDGE', psn: 101 }), aeth({ nak: 0x60, msn: 0 }));
  expectPacket(answers.at(-1).bytes, bth({ psn: 103 }), aeth({ ack: true, msn: 1 }));
}

/** 300 requests each way, of all kinds: each once, in order, byte for byte. */
function mixedOperations(seed) {
  const faults = { loss: 0.02, reorder: 0.02, duplicate: 0.02, corrupt: 0.01 };
  // A burst that outlasts all retries would end the connection by right: such a long one comes once in 15,000.
  const bursts = { burst: { begin: 0.005, end: 0.7 }, rate: 10e9, queue: 100_000, markAt: 50_000 };
  const pair = new Pair({
    a: 'model',
    b: makeDevice,
    seed,
    arenaBytes: ARENA_BYTES,
    aToB: faults,
    bToA: bursts,
  });
  const again = `node interop-suite.mjs ${seed}`;
  try {
    const workload = new MixedWorkload(pair.a, pair.b, 300, createRandom(seed));
    if (!pair.run(() => workload.step())) throw new Error('nothing moves any more');
    if (workload.failure) throw new Error(`the connection ended with ${workload.failure}`);
  } catch (error) {
    writeFileSync(`interop-suite-${seed}.pcapng`, captureOf(pair.network.trace, again));
    throw new Error(`seed ${seed}: ${error.message}; again: ${again}`, { cause: error });
  }
}

const only = Number(process.argv[2] ?? 0);
lostPacketDrawsOneNak();
for (let seed = only || 1; seed <= (only || 20); seed++) mixedOperations(seed);
console.log('all is well');
