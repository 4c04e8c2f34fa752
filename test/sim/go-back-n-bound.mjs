/**
 * The goodput that go-back-N can have, by itself: a sender that never waits for a window, a receiver that drops what comes
 * early and sends one NAK for a gap, a probe of the missing packet after two round trips of silence. Nothing of the
 * engine or the model is used.
 *
 * node test/sim/go-back-n-bound.mjs: Gb/s at losses of 1, 5 and 20 %.
 */

/** Bytes around a packet's payload: Ethernet, IPv4, UDP, BTH, ICRC. */
const OVERHEAD = 14 + 20 + 8 + 12 + 4;

/** mulberry32. */
function randomOf(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * @param {{ rate: number, roundTrip: number, pathMtu: number, loss: number, gaps?: number }} path bits per second, µs,
 *   bytes, share of packets lost in both directions, gaps to average over
 * @returns {number} Gb/s of payload
 */
export function goBackNBound({ rate, roundTrip, pathMtu, loss, gaps = 200_000 }) {
  const packetTime = ((pathMtu + OVERHEAD) * 8e6) / rate;
  if (loss === 0) return (pathMtu * 8) / packetTime / 1000;
  const random = randomOf(1);
  const isLost = () => random() < loss;
  let time = 0;
  let delivered = 0;
  for (let gap = 0; gap < gaps; gap++) {
    while (!isLost()) {
      delivered++;
      time += packetTime;
    }
    time += packetTime;
    // The next packet that arrives draws the NAK; everything that is sent until the NAK is here is wasted.
    while (isLost()) time += packetTime;
    const nakLost = isLost();
    time += roundTrip;
    // The retransmitted packet is lost as well, or it was never asked for: the receiver is silent.
    if (!nakLost && !isLost()) {
      delivered++;
      time += packetTime;
      continue;
    }
    for (;;) {
      time += 2 * roundTrip;
      if (!isLost() && !isLost()) break;
    }
    delivered++;
  }
  return (delivered * pathMtu * 8) / time / 1000;
}

if (process.argv[1] === import.meta.filename) {
  for (const loss of [0, 0.01, 0.05, 0.2]) {
    const bound = goBackNBound({ rate: 10e9, roundTrip: 20, pathMtu: 1024, loss });
    console.log(`${loss * 100} %: ${bound.toFixed(2)} Gb/s`);
  }
  const far = goBackNBound({ rate: 10e9, roundTrip: 1000, pathMtu: 4096, loss: 0.001 });
  console.log(`0.1 %, a round trip of 1 ms, path MTU 4096: ${far.toFixed(2)} Gb/s`);
}
