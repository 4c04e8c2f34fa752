// Calls everything with anything; run by hostile.test.ts. Prints what happened as JSON.
import { createSocket } from 'node:dgram';
import fc from 'fast-check';
import * as addon from '../index.js';

const { TX_SLOT_WORDS, Tx } = addon.layout;

const seed = Number(process.argv[2] ?? 1);
const { Capture, Doorbells, InterfaceWatcher, LocalSocket, Socket, Port, IdWindow } = addon;
const kinds = new Set([
  'ERR_INVALID_ARG_TYPE',
  'ERR_OUT_OF_RANGE',
  'ERR_ROCE_PORT_CLOSED',
  'ERR_ROCE_CAPTURE_CLOSED',
]);
let calls = 0;
let threw = 0;

/** The call must not crash; it may only throw one of the documented errors. */
function attempt(call) {
  calls++;
  try {
    return call();
  } catch (error) {
    threw++;
    const known =
      error instanceof Error &&
      (error instanceof TypeError ||
        error instanceof RangeError ||
        kinds.has(error.code) ||
        typeof error.syscall === 'string');
    if (!known && error.message !== 'from a getter') throw error;
    return undefined;
  }
}

function detached(Type) {
  const view = new Type(64);
  structuredClone(view.buffer, { transfer: [view.buffer] });
  return view;
}

const gid = (last) => Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, last);
const word = fc.oneof(
  fc.nat(3),
  fc.nat(200),
  fc.nat(0xffff_ffff),
  fc.constantFrom(0xffff_ffff, 0x8000_0000, 0x7fff_ffff, 65_536, 65_507, 4096, 12, 16),
);
const number = fc.oneof(
  word,
  fc.double(),
  fc.integer(),
  fc.constantFrom(-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, -0),
);
const words = fc.oneof(
  { weight: 5, arbitrary: fc.array(word, { maxLength: 60 }).map((list) => Uint32Array.from(list)) },
  fc.constantFrom(
    new Uint32Array(new SharedArrayBuffer(4096)),
    new Uint32Array(0),
    new Uint32Array(new ArrayBuffer(64, { maxByteLength: 4096 })),
  ),
  fc.constant(0).map(() => detached(Uint32Array)),
);
const bytes = fc.oneof(
  { weight: 5, arbitrary: fc.uint8Array({ maxLength: 300 }) },
  fc.constantFrom(
    new Uint8Array(200_000),
    new Uint8Array(new SharedArrayBuffer(5000)),
    Buffer.alloc(100),
    gid(1),
    gid(2),
  ),
  fc.constant(0).map(() => detached(Uint8Array)),
);
const strange = fc.constantFrom(
  undefined,
  null,
  true,
  'text',
  '127.0.0.1',
  Symbol('s'),
  10n,
  {},
  [],
  () => {},
  new Float64Array(8),
  new Float64Array(new SharedArrayBuffer(8)),
  new DataView(new ArrayBuffer(8)),
  new ArrayBuffer(8),
  new Proxy({}, {}),
  new Proxy([], {}),
  Object.create(Socket.prototype),
  Object.create(Port.prototype),
  Object.create(Capture.prototype),
  Object.create(InterfaceWatcher.prototype),
  Object.create(Doorbells.prototype),
  Object.create(LocalSocket.prototype),
  new Date(),
  Number,
);
const views = fc.oneof(
  { weight: 4, arbitrary: fc.array(fc.oneof(bytes, strange), { maxLength: 6 }) },
  // biome-ignore lint/suspicious/noSparseArray: a hole is what is wanted
  fc.constantFrom([, new Uint8Array(10)], Object.assign([], { length: 0xffff_ffff })),
);
const any = fc.oneof(number, words, bytes, views, strange);

const socketOptions = fc.record(
  {
    family: fc.oneof(fc.constantFrom(4, 6), any),
    address: fc.oneof(
      fc.constantFrom('127.0.0.1', '::1', '127.0.0.2', '239.1.1.1', '0.0.0.0'),
      fc.string(),
      strange,
    ),
    port: fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, number, strange),
    receiveBuffer: number,
    sendBuffer: any,
    gro: fc.oneof(fc.boolean(), strange),
    checksum: fc.boolean(),
    receive: fc.boolean(),
    reusePort: fc.boolean(),
    device: fc.oneof(fc.constantFrom('', 'lo'), fc.string()),
    multicastInterface: fc.oneof(fc.constantFrom('', 'lo'), fc.string()),
  },
  { requiredKeys: ['family', 'address', 'port'] },
);
const portOptions = fc.record(
  {
    onWake: fc.oneof(
      fc.constant(() => {}),
      strange,
    ),
    transmitSockets: number,
    gso: fc.boolean(),
    udpChecksum: fc.boolean(),
    idWindow: strange,
    takeFlushTwice: fc.boolean(),
    sendFlushTwice: strange,
    maxPeers: number,
    maxSegments: number,
    sendBuffer: number,
  },
  { requiredKeys: [] },
);
const peerOptions = fc.record(
  {
    address: fc.oneof(fc.constantFrom(gid(1), gid(2), new Uint8Array(16)), bytes, strange),
    local: fc.oneof(fc.constant(0), number),
    hopLimit: number,
    port: fc.oneof(fc.constant(14_899), number),
  },
  { requiredKeys: ['address', 'local'] },
);

/** A port that is in use: a local address, a peer, its batches. */
function prepared(options) {
  const port = attempt(() => new Port(options)) ?? new Port();
  const socket = new Socket({ family: 4, address: '127.0.0.1', port: 0, gro: true });
  port.addLocal(socket);
  port.addPeer({ address: gid(1), local: 0, port: socket.port });
  return { port, socket };
}

/** Slots that are nearly right, so that the checks behind the first one are reached. */
const nearlySlots = fc
  .array(
    fc.tuple(
      fc.oneof(fc.nat(64), word),
      fc.oneof(fc.constantFrom(12, 28, 64), word),
      fc.oneof(fc.nat(3), word),
      fc.oneof(fc.nat(3), word),
      word,
      fc.oneof(fc.nat(3), word),
      fc.oneof(fc.constant(0), word),
      fc.oneof(fc.nat(255), word),
      fc.oneof(fc.nat(65_535), word),
      fc.oneof(fc.constant(1), fc.nat(9), word),
    ),
    { maxLength: 8 },
  )
  .map((slots) => {
    const array = new Uint32Array(slots.length * TX_SLOT_WORDS);
    for (const [i, slot] of slots.entries()) {
      array.set(slot.slice(0, -1), i * TX_SLOT_WORDS);
      array[i * TX_SLOT_WORDS + Tx.RUN] = slot.at(-1);
    }
    return array;
  });
const nearlyFragments = fc
  .array(
    fc.tuple(fc.oneof(fc.nat(5), word), word, fc.oneof(fc.constant(0), word), fc.oneof(fc.nat(5000), word)),
    { maxLength: 8 },
  )
  .map((list) => Uint32Array.from(list.flat()));

const assert = (arbitrary, check, numRuns) => fc.assert(fc.property(arbitrary, check), { seed, numRuns });

// Functions.
for (const call of [
  addon.crc32,
  addon.crc32Copy,
  addon.solveId,
  addon.copyBatch,
  addon.copier,
  addon.setCrcImplementation,
  addon.now,
  addon.setSlice,
  addon.yieldProcessor,
  addon.features,
]) {
  assert(
    fc.array(any, { maxLength: 5 }),
    (args) => {
      attempt(() => call(...args));
    },
    150,
  );
}
assert(
  fc.tuple(bytes, views, words, number),
  (args) => {
    attempt(() => addon.copyBatch(...args));
  },
  400,
);
assert(
  fc.tuple(bytes, views, words, fc.array(number, { maxLength: 3 })),
  ([slab, table, list, counts]) => {
    const entries = new Uint32Array(new SharedArrayBuffer(4 * list.length));
    attempt(() => entries.set(list)); // Unless it is detached.
    const ours = new Uint8Array(new SharedArrayBuffer(slab.length));
    attempt(() => addon.copier(slab, table, list));
    const copy = attempt(() => addon.copier(ours, table, entries));
    if (copy) for (const count of counts) attempt(() => copy(count));
  },
  200,
);

// Constructors.
for (const Class of [Socket, LocalSocket, Port, IdWindow, Capture, InterfaceWatcher, Doorbells]) {
  attempt(() => Class());
  assert(
    fc.array(any, { maxLength: 2 }),
    (args) => {
      attempt(() => new Class(...args))?.close?.();
    },
    100,
  );
}
assert(
  socketOptions,
  (options) => {
    const socket = attempt(() => new Socket(options));
    if (!socket) return;
    for (const name of ['address', 'port', 'family', 'receiveBuffer', 'sendBuffer', 'gro', 'drops', 'closed'])
      attempt(() => socket[name]);
    attempt(() => new Port().addLocal(socket));
    socket.close();
  },
  300,
);
const interfaceName = fc.oneof({ weight: 4, arbitrary: fc.constant('lo') }, fc.string(), strange);
const captureOptions = fc.record(
  {
    interface: interfaceName,
    snapLength: fc.oneof(fc.constantFrom(64, 96, 65_536), number, strange),
    promiscuous: fc.oneof(fc.boolean(), strange),
    mirrors: fc.oneof(fc.boolean(), strange),
    buffer: fc.oneof(fc.constantFrom(1 << 20, 3_000_000), number, strange),
    onWake: fc.oneof(
      fc.constant(() => {}),
      strange,
    ),
  },
  { requiredKeys: ['interface'] },
);
assert(
  captureOptions,
  (options) => {
    attempt(
      () => new Capture({ ...options, buffer: Math.min(options.buffer, 1 << 24) || options.buffer }),
    )?.close();
  },
  100,
);
assert(
  fc.record(
    {
      interface: interfaceName,
      onWake: fc.oneof(
        fc.constant(() => {}),
        strange,
      ),
    },
    { requiredKeys: [] },
  ),
  (options) => {
    const watcher = attempt(() => new InterfaceWatcher(options));
    attempt(() => watcher?.read());
    watcher?.close();
  },
  100,
);
assert(
  portOptions,
  (options) => {
    attempt(() => new Port(options))?.close();
  },
  200,
);

// Methods, on the right object, on wrong ones, and after close.
const methods = (Class) =>
  Object.getOwnPropertyNames(Class.prototype).filter((name) => name !== 'constructor');
for (const Class of [Socket, LocalSocket, Port, IdWindow, Capture, InterfaceWatcher, Doorbells]) {
  for (const name of methods(Class)) {
    const { get, value } = Object.getOwnPropertyDescriptor(Class.prototype, name);
    const method = get ?? value;
    const { port, socket } = prepared({});
    for (const wrong of [
      undefined,
      {},
      Object.create(Class.prototype),
      port,
      socket,
      Object.setPrototypeOf(new Port(), Socket.prototype),
      Object.setPrototypeOf(new IdWindow(), Class.prototype),
    ]) {
      attempt(() => method.call(wrong));
    }
    attempt(() => port.addLocal(Object.setPrototypeOf(new Port(), Socket.prototype)));
    port.close();
    attempt(() => Port.prototype[name]?.call(port, 0, 0, 0));
    socket.close();
  }
}
for (const name of methods(Port).filter((name) => name !== 'close')) {
  const { port, socket } = prepared({});
  assert(
    fc.array(any, { maxLength: 7 }),
    (args) => {
      attempt(() => port[name](...args));
    },
    150,
  );
  port.close();
  socket.close();
}
// With CAP_NET_RAW only: the slots and the slab of a capture that has something to read.
{
  const capture = attempt(() => new Capture({ interface: 'lo', buffer: 1 << 20, snapLength: 100 }));
  const socket = createSocket('udp4');
  for (const name of capture === undefined ? [] : methods(Capture).filter((name) => name !== 'close')) {
    socket.send(new Uint8Array(200), 4791, '127.0.0.1');
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert(
      fc.oneof(fc.array(any, { maxLength: 3 }), fc.tuple(bytes, words)),
      (args) => {
        attempt(() => capture[name](...args));
      },
      150,
    );
    attempt(() => capture.stop());
  }
  capture?.close();
  for (const name of methods(Capture))
    attempt(() => capture?.[name](new Uint8Array(500), new Uint32Array(6)));
  socket.close();
}
for (const name of ['joinGroup', 'leaveGroup']) {
  const socket = new Socket({ family: 4, address: '127.0.0.1', port: 0 });
  assert(
    fc.array(fc.oneof(fc.constantFrom('239.1.1.1', 'lo', 1), any), { maxLength: 3 }),
    (args) => {
      attempt(() => socket[name](...args));
    },
    100,
  );
  socket.close();
}

// Batches.
{
  const { port, socket } = prepared({});
  assert(
    peerOptions,
    (options) => {
      const peer = attempt(() => port.addPeer(options));
      if (peer > 40) attempt(() => port.removePeer(peer));
    },
    300,
  );
  assert(
    fc.tuple(
      fc.oneof(nearlySlots, words),
      bytes,
      fc.oneof(nearlyFragments, words),
      fc.oneof(fc.constant(0), number),
      fc.oneof(fc.nat(8), number),
      views,
      bytes,
    ),
    (args) => {
      attempt(() => port.send(...args));
      attempt(() => port.receive(new Uint8Array(1 << 18), new Uint32Array(1200), new Uint8Array(1600), 100));
    },
    1500,
  );
  assert(
    fc.tuple(bytes, words, bytes, number),
    (args) => {
      attempt(() => port.receive(...args));
    },
    500,
  );
  port.close();
  socket.close();
}

// Getters that pull the floor away: they detach the arrays of the batch, or close the port.
for (const deed of ['detach', 'close', 'throw', 'again']) {
  const { port, socket } = prepared({});
  const slots = new Uint32Array(2 * TX_SLOT_WORDS);
  const headers = new Uint8Array(128);
  const fragments = new Uint32Array(8);
  const memory = new Uint8Array(70_000);
  slots.set([0, 12, 0, 1, 60_000, 0, 0, 0, 0xc000]);
  slots.set([64, 12, 1, 1, 100, 0, 0, 0, 0xc000], TX_SLOT_WORDS);
  fragments.set([0, 0, 0, 60_000, 1, 0, 0, 100]);
  const table = [memory, undefined];
  const send = () => port.send(slots, headers, fragments, 0, 2, table, new Uint8Array(2));
  let depth = 0;
  Object.defineProperty(table, 1, {
    get() {
      if (deed === 'detach')
        for (const view of [slots, headers, fragments, memory])
          if (view.length) structuredClone(view.buffer, { transfer: [view.buffer] });
      if (deed === 'close') {
        port.close();
        socket.close();
      }
      if (deed === 'throw') throw new Error('from a getter');
      if (deed === 'again' && depth++ < 3) attempt(send);
      return memory;
    },
  });
  attempt(send);
  const list = new Uint32Array(10);
  list.set([0, 0, 0, 0, 60_000, 0, 1, 0, 0, 100]);
  attempt(() => addon.copyBatch(headers.length ? new Uint8Array(65_536) : headers, table, list, 2));
  attempt(() =>
    port.stats(
      Object.defineProperty({}, 'txPackets', {
        set() {
          port.close();
        },
      }),
    ),
  );
  port.close();
  socket.close();
}

// Options whose getters close things.
{
  const { port, socket } = prepared({});
  attempt(() =>
    port.addPeer({
      get address() {
        port.close();
        return gid(1);
      },
      local: 0,
    }),
  );
  attempt(() =>
    port.addPeer({
      address: gid(1),
      get local() {
        socket.close();
        return 0;
      },
    }),
  );
}

console.log(JSON.stringify({ calls, threw, survived: true }));
process.exit(0);
