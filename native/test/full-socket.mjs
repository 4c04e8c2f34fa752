/**
 * Sends over slow links until sockets are full, and prints the wake-ups as JSON; full-socket.test.ts runs it in
 * a network namespace. Argument: the name of a scenario.
 */
import { openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { layout, Port, Socket, Wake } from '../index.js';

const WORDS = layout.TX_SLOT_WORDS;

const SLOTS = 64;
const BYTES = 1000;
const memory = new Uint8Array(BYTES);
const gid = (text) => Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, ...text.split('.').map(Number));

let wakes = 0;
let taken = 0;
let woken = () => {};
const port = new Port({
  gso: false,
  onWake(events) {
    wakes++;
    woken(events);
  },
});
const wake = () => new Promise((resolve) => (woken = resolve));

/** A local address and a peer behind it: sends batches until its socket is full. */
function open(address, peerAddress) {
  const socket = new Socket({ family: 4, address, port: 4791 });
  const local = port.addLocal(socket);
  const peer = port.addPeer({ address: gid(peerAddress), local });
  const slots = new Uint32Array(WORDS * SLOTS);
  const fragments = Uint32Array.of(0, 0, 0, BYTES);
  for (let i = 0; i < SLOTS; i++) slots.set([0, 12, 0, 1, BYTES, 0, peer, 0, 0xc000], WORDS * i);
  const send = () => port.send(slots, new Uint8Array(64), fragments, 0, SLOTS, [memory], new Uint8Array(1));
  const fill = () => {
    for (let i = 0; i < 1000; i++) {
      const sent = send();
      taken += sent;
      if (sent < SLOTS) return;
    }
    throw new Error('the link is not slow');
  };
  return { socket, local, peer, fill };
}

/** Wake-ups and milliseconds of CPU while nothing is asked for. */
async function idle(milliseconds) {
  await sleep(50);
  wakes = 0;
  const before = process.cpuUsage();
  await sleep(milliseconds);
  const { user, system } = process.cpuUsage(before);
  return { wakes, cpuMs: (user + system) / 1000 };
}

function useUpDescriptors() {
  try {
    for (;;) openSync('/dev/null');
  } catch {
    // There are none left.
  }
}

/** Fills the socket, waits until there is room, and is idle then: `rounds` times. */
async function rounds(number, whenFull = () => {}) {
  const { fill } = open('10.77.0.1', '10.77.0.2');
  const result = [];
  for (let i = 0; i < number; i++) {
    fill();
    whenFull();
    port.wantWrite(true);
    const events = await wake();
    port.wantWrite(false);
    result.push({ events, ...(await idle(300)) });
  }
  const { sendBlocked, txPackets, sendErrors } = port.stats();
  return { rounds: result, sendBlocked, txPackets, sendErrors, taken };
}

const scenarios = {
  full: () => rounds(3),

  async 'no descriptors'() {
    return rounds(2, useUpDescriptors);
  },

  async 'another socket'() {
    const quick = open('10.77.0.1', '10.77.0.2');
    const slow = open('10.78.0.1', '10.78.0.2');
    quick.fill();
    port.wantWrite(true);
    await wake();
    slow.fill();
    wakes = 0;
    const started = performance.now();
    const events = await wake();
    return { events, waited: performance.now() - started, wakes };
  },

  async removed() {
    const { socket, local, peer, fill } = open('10.77.0.1', '10.77.0.2');
    fill();
    port.removePeer(peer);
    port.removeLocal(local);
    socket.close();
    port.wantWrite(true);
    const first = await wake();
    port.wantWrite(false);
    return { first, ...(await idle(300)) };
  },

  async 'removed while waited for'() {
    const { socket, local, peer, fill } = open('10.77.0.1', '10.77.0.2');
    const other = open('10.78.0.1', '10.78.0.2');
    fill();
    port.wantWrite(true);
    port.removePeer(peer);
    port.removeLocal(local);
    socket.close();
    const first = await wake();
    // Its descriptors' numbers are others' now.
    const next = open('10.77.0.1', '10.77.0.2');
    next.fill();
    other.fill();
    wakes = 0;
    const events = await wake();
    port.wantWrite(false);
    return { first, events, ...(await idle(300)) };
  },
};

port.start();
const result = await scenarios[process.argv[2]]();
console.log(JSON.stringify({ ...result, WRITABLE: Wake.WRITABLE }));
port.close();
process.exit(0);
