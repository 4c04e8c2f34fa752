/**
 * The attacks of "ReDMArk: Bypassing RDMA Security Mechanisms" (Rothenberger, Taranov, Perrig, Hoefler; USENIX Security 2021),
 * one by one, through the public API: what is refused, and what is not, because the protocol has nothing to refuse it by.
 * docs/security.md answers them in words and refers to these tests by name.
 */
import { MemoryNetwork } from '@node-roce/link';
import { createRandom, DEFAULT_PKEY, encodePacket, type ModelPacket } from '@node-roce/sim';
import {
  type CompletionQueue,
  type Device,
  type KeepEarly,
  type MemoryRegion,
  type OpenOptions,
  openDevice,
  type ProtectionDomain,
  type QueuePair,
} from '@node-roce/verbs-api';
import { gidFromText, Opcode, opcodeInfo, psnAdd } from '@node-roce/wire';
import { afterEach, describe, expect, test } from 'vitest';

const [SERVER, CLIENT, ATTACKER] = ['10.0.0.1', '10.0.0.2', '10.0.0.66'];

interface Side {
  device: Device;
  pd: ProtectionDomain;
  cq: CompletionQueue;
  memory: Uint8Array<ArrayBuffer>;
  mr: MemoryRegion;
}

const open = new Set<Device>();
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

/** A network of hosts, each with a device, and somebody who can put any packet on it. */
class Site {
  readonly network = new MemoryNetwork();
  readonly random = createRandom(9);

  async side(address: string, options: Partial<OpenOptions> = {}): Promise<Side> {
    const device = await openDevice({ ...options, link: this.network.link(address, 1024) });
    open.add(device);
    const pd = await device.allocPd();
    const cq = await device.createCq(64);
    const memory = new Uint8Array(8192);
    const access = { remoteWrite: true, remoteRead: true, remoteAtomic: true };
    return { device, pd, cq, memory, mr: await pd.registerMr(memory, { access }) };
  }

  /** Gives packets to a device as if they came from that address; resolves when they were looked at. */
  async inject(to: Device, source: string, packets: readonly ModelPacket[]): Promise<void> {
    for (let from = 0; from < packets.length; from += 1000) {
      const seen = to.progress();
      for (const packet of packets.slice(from, from + 1000)) {
        const way = { source: gidFromText(source), trafficClass: 0, sourcePort: 0xc000, hopLimit: 64 };
        this.network.deliver({ bytes: encodePacket(packet), ...way }, to.gids[0].gid);
      }
      await seen;
    }
  }
}

async function connect(left: QueuePair, right: QueuePair): Promise<void> {
  await left.connect(right.connectionData(), { timeout: 8 });
  await right.connect(left.connectionData(), { timeout: 8 });
}

/** A server and a client with a connection. */
async function connected(type: 'RC' | 'UC' = 'RC', keepEarly: KeepEarly = 'auto') {
  const site = new Site();
  const [server, client] = [await site.side(SERVER), await site.side(CLIENT)];
  const there = await server.pd.createQp({ type, sendCq: server.cq, recovery: { keepEarly } });
  const here = await client.pd.createQp({ type, sendCq: client.cq });
  await connect(here, there);
  return { site, server, client, here, there };
}

/** The client's WRITE of one byte to the start of the server's region; its status. */
async function write(
  client: Side,
  qp: QueuePair,
  value: number,
  remote = { addr: 0n, rkey: 0 },
): Promise<string> {
  client.memory[0] = value;
  qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr: client.mr, length: 1 }], remote });
  return (await client.cq.next()).status;
}

function request(opcode: number, destQpn: number, psn: number, rest: Partial<ModelPacket> = {}): ModelPacket {
  const blank = { ackReq: true, solicited: false, pkey: DEFAULT_PKEY, payload: new Uint8Array(0) };
  return { opcode, destQpn, psn, ...blank, ...rest };
}

/** A WRITE of 0xee to the start of a region, right in everything. */
const evilWrite = (
  qp: QueuePair,
  psn: number,
  { iova, rkey }: MemoryRegion,
  opcode: number = Opcode.RC_RDMA_WRITE_ONLY,
) =>
  request(opcode, qp.qpNum, psn, {
    payload: new Uint8Array(4).fill(0xee),
    reth: { va: iova, rkey, length: 4 },
  });

/** The PSNs that each side is at. */
const psnsOf = async (qp: QueuePair) => {
  const { rqPsn = 0, sqPsn = 0 } = (await qp.query()).attr;
  return { rqPsn, sqPsn };
};

/** Guesses of a PSN that are all wrong: one in 2^24 / 2 × 1024 guesses would be near enough to be right. */
function guesses(site: Site, right: number, count: number): number[] {
  return Array.from({ length: count }, () => psnAdd(right, site.random.between(1024, 0xff_ffff - 1024)));
}

describe('A1: packets injected under another name', () => {
  test('from an address of one’s own: dropped, though all else is right', async () => {
    const { site, server, client, here, there } = await connected();
    const { rqPsn } = await psnsOf(there);
    await site.inject(server.device, ATTACKER, [evilWrite(there, rqPsn, server.mr)]);
    expect(server.memory[0]).toBe(0);
    expect(await server.device.counters()).toMatchObject({ wrongSource: 1, writeRequests: 0 });
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
    expect(server.memory[0]).toBe(5);
  });

  test('under the client’s address, with PSNs that are guessed: none is executed, and the connection goes on', async () => {
    const { site, server, client, here, there } = await connected();
    const { rqPsn } = await psnsOf(there);
    const guessed = guesses(site, rqPsn, 20_000).map((psn) => evilWrite(there, psn, server.mr));
    await site.inject(server.device, CLIENT, guessed);
    expect(server.memory[0]).toBe(0);
    const { duplicateRequest, outOfSeqRequest, writeRequests } = await there.counters();
    expect([duplicateRequest + outOfSeqRequest, writeRequests]).toEqual([20_000, 0]);
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
    expect(server.memory[0]).toBe(5);
  });

  test('not prevented: who knows address, QPN, PSN, key and memory address is taken for the client', async () => {
    const { site, server, client, here, there } = await connected();
    const { rqPsn } = await psnsOf(there);
    await site.inject(server.device, CLIENT, [evilWrite(there, rqPsn, server.mr)]);
    expect([...server.memory.subarray(0, 4)]).toEqual([0xee, 0xee, 0xee, 0xee]);
    // The client's own next packet has that PSN too, passes for a repetition, and is acknowledged without being done.
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
    expect(server.memory[0]).toBe(0xee);
  });

  test('not prevented: a forged answer with the PSN of an outstanding request is believed', async () => {
    const { site, server, client } = await connected();
    const here = await client.pd.createQp({ sendCq: client.cq });
    // To a queue pair that is not there: no answer will come.
    await here.connect({ qpNum: 0x77, psn: 0, gid: SERVER }, { timeout: 0 });
    const { sqPsn } = await psnsOf(here);
    const completed = write(client, here, 5, server.mr.remote());
    await expect.poll(async () => (await psnsOf(here)).sqPsn).toBe(psnAdd(sqPsn, 1));
    const ack = (psn: number) =>
      request(Opcode.RC_ACKNOWLEDGE, here.qpNum, psn, { ackReq: false, aeth: { syndrome: 0x1f, msn: 1 } });
    await site.inject(client.device, SERVER, [ack(psnAdd(sqPsn, 1)), ack(psnAdd(sqPsn, -1))]);
    expect(here.sendPending).toBe(1);
    await site.inject(client.device, SERVER, [ack(sqPsn)]);
    expect(await completed).toBe('SUCCESS');
    expect(server.memory[0]).toBe(0);
  });

  test('not prevented on UC: any PSN will do for the beginning of a message', async () => {
    const { site, server, there } = await connected('UC');
    const packet = evilWrite(there, site.random.next() & 0xff_ffff, server.mr, Opcode.UC_RDMA_WRITE_ONLY);
    await site.inject(server.device, ATTACKER, [packet]);
    expect(server.memory[0]).toBe(0);
    await site.inject(server.device, CLIENT, [packet]);
    expect(server.memory[0]).toBe(0xee);
  });

  test('UD: a sender with the Q_Key is heard, one without is counted', async () => {
    const { site, server } = await connected();
    const qp = await server.pd.createQp({ type: 'UD', sendCq: server.cq });
    await qp.activate({ qkey: 0x1234_5678 });
    for (let i = 0; i < 2; i++)
      qp.postRecv({ wrId: i, sgList: [{ mr: server.mr, offset: 1024, length: 64 }] });
    const datagram = (qkey: number) =>
      request(Opcode.UD_SEND_ONLY, qp.qpNum, 0, { deth: { qkey, srcQpn: 7 }, payload: new Uint8Array(4) });
    await site.inject(server.device, ATTACKER, [datagram(0x1234_5679), datagram(0), datagram(0x1234_5678)]);
    expect(await qp.counters()).toMatchObject({ qkeyViolations: 2, receivedMessages: 1 });
  });
});

describe('A2: connections ended by packets that are wrong on purpose', () => {
  const faults = (qp: QueuePair, psn: number): ModelPacket[] => [
    request(Opcode.RC_SEND_MIDDLE, qp.qpNum, psn, { payload: new Uint8Array(1024) }),
    request(Opcode.RC_RDMA_READ_REQUEST, qp.qpNum, psn, { reth: { va: 0n, rkey: 1, length: 8 } }),
    request(Opcode.RC_FETCH_ADD, qp.qpNum, psn, { atomicEth: { va: 1n, rkey: 1, swapAdd: 1n, compare: 0n } }),
    request(Opcode.RC_RDMA_WRITE_ONLY, qp.qpNum, psn, {
      reth: { va: 0n, rkey: 1, length: 8 },
      payload: new Uint8Array(8),
    }),
  ];
  const nak = (qp: QueuePair, psn: number, syndrome: number) =>
    request(Opcode.RC_ACKNOWLEDGE, qp.qpNum, psn, { ackReq: false, aeth: { syndrome, msn: 0 } });

  test('requests with a PSN that is guessed end nothing', async () => {
    const { site, server, client, here, there } = await connected();
    const { rqPsn } = await psnsOf(there);
    await site.inject(
      server.device,
      CLIENT,
      guesses(site, rqPsn, 2000).flatMap((psn) => faults(there, psn)),
    );
    expect(there.state).toBe('RTS');
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
  });

  test('NAKs with a PSN that is guessed end nothing', async () => {
    const { site, client, server, here } = await connected();
    const { sqPsn } = await psnsOf(here);
    const naks = guesses(site, sqPsn, 10_000).map((psn, i) =>
      nak(here, psn, [0x60, 0x61, 0x62, 0x63, 0x7f, 0x20][i % 6]),
    );
    await site.inject(client.device, SERVER, naks);
    expect((await here.counters()).receivedAccessErr).toBe(0);
    expect((await client.device.counters()).staleResponses).toBe(10_000);
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
  });

  test('not prevented: with the right PSN a connection ends; the program is notified, and no other one ends', async () => {
    const { site, server, client, here, there } = await connected();
    const [other, otherHere] = [
      await server.pd.createQp({ sendCq: server.cq }),
      await client.pd.createQp({ sendCq: client.cq }),
    ];
    await connect(otherHere, other);
    const { rqPsn } = await psnsOf(there);
    const events: string[] = [];
    server.device.onEvent(({ type }) => events.push(type));
    await site.inject(server.device, CLIENT, [faults(there, rqPsn)[1]]);
    expect([there.state, other.state]).toEqual(['ERR', 'RTS']);
    expect(events).toContain('QP_ACCESS_ERR');
    expect(await write(client, here, 5, server.mr.remote())).not.toBe('SUCCESS');
    expect(await write(client, otherHere, 6, server.mr.remote())).toBe('SUCCESS');
  });

  test('UC is never ended by a packet', async () => {
    const { site, server, client, here, there } = await connected('UC');
    const requests = Object.values(Opcode).filter((opcode) => opcodeInfo(opcode)?.transport === 0x20);
    const packets = Array.from({ length: 2000 }, () => {
      const opcode = site.random.pick(requests);
      const reth = { va: 0n, rkey: site.random.next(), length: site.random.next() };
      const payload = new Uint8Array(site.random.between(0, 1024));
      return request(opcode, there.qpNum, site.random.next() & 0xff_ffff, {
        payload,
        immediate: 1,
        ...(opcodeInfo(opcode)!.offsets.reth >= 0 ? { reth } : {}),
      });
    }).map((packet) =>
      opcodeInfo(packet.opcode)!.hasImmediate ? packet : { ...packet, immediate: undefined },
    );
    await site.inject(server.device, CLIENT, packets);
    expect(there.state).toBe('RTS');
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
    await expect.poll(() => server.memory[0]).toBe(5);
  });
});

describe('A3: memory of others', () => {
  test('each wrong guess of a key costs the guesser its connection', async () => {
    const { server, client, here, there } = await connected();
    const { addr, rkey } = server.mr.remote();
    expect(await write(client, here, 5, { addr, rkey: (rkey ^ 0x100) >>> 0 })).toBe('REM_ACCESS_ERR');
    expect([here.state, there.state]).toEqual(['ERR', 'ERR']);
    expect(server.memory[0]).toBe(0);
    expect((await there.counters()).sentAccessErr).toBe(1);
  });

  /** The answer to a WRITE there by a client with a connection of its own. */
  async function outcome(make: (server: Side, there: QueuePair) => Promise<{ addr: bigint; rkey: number }>) {
    const { server, client, here, there } = await connected();
    const remote = await make(server, there);
    const status = await write(client, here, 5, remote);
    expect(server.memory.every((byte) => byte === 0)).toBe(true);
    return status;
  }

  test('a key of another protection domain, known: refused', async () => {
    const status = await outcome(async (server) => {
      const pd = await server.device.allocPd();
      return (await pd.registerMr(server.memory, { access: { remoteWrite: true } })).remote();
    });
    expect(status).toBe('REM_ACCESS_ERR');
  });

  test.each([-1n, 8192n])('the right key, an address next to the region (%s): refused', async (beside) => {
    const status = await outcome(async ({ mr }) => ({ addr: mr.iova + beside, rkey: mr.rkey }));
    expect(status).toBe('REM_ACCESS_ERR');
  });

  test('a region that peers may not write: refused; no access is open unless it was given', async () => {
    const status = await outcome(async ({ pd, memory }) => (await pd.registerMr(memory)).remote());
    expect(status).toBe('REM_ACCESS_ERR');
  });

  test('a region that was deregistered: refused at once', async () => {
    const status = await outcome(async (server) => {
      const remote = server.mr.remote();
      await server.mr.deregister();
      return remote;
    });
    expect(status).toBe('REM_ACCESS_ERR');
  });

  test('a window of type 2 that was bound for another client: refused; for its own: open until it is invalidated', async () => {
    const { server, client, here, there } = await connected();
    const mr = await server.pd.registerMr(server.memory, { access: { localWrite: true, mwBind: true } });
    const [other, otherHere] = [
      await server.pd.createQp({ sendCq: server.cq }),
      await client.pd.createQp({ sendCq: client.cq }),
    ];
    await connect(otherHere, other);
    const mw = await server.pd.allocMw(2);
    there.postSend({
      opcode: 'BIND_MW',
      signaled: true,
      bind: { mw, mr, length: 16, access: { remoteWrite: true } },
    });
    expect((await server.cq.next()).status).toBe('SUCCESS');
    const remote = { addr: mr.iova, rkey: mw.rkey };
    expect(await write(client, otherHere, 5, remote)).toBe('REM_ACCESS_ERR');
    expect(await write(client, here, 6, remote)).toBe('SUCCESS');
    expect(server.memory[0]).toBe(6);
    there.postSend({ opcode: 'LOCAL_INV', signaled: true, invalidateRkey: mw.rkey });
    expect((await server.cq.next()).status).toBe('SUCCESS');
    expect(await write(client, here, 7, remote)).toBe('REM_ACCESS_ERR');
    expect(server.memory[0]).toBe(6);
  });
});

describe('A4: queue pairs used up', () => {
  test('beyond the limit creation fails and all else goes on; closed objects can be made again', async () => {
    const site = new Site();
    const server = await site.side(SERVER, { limits: { maxQp: 8 } });
    const client = await site.side(CLIENT);
    const qps = await Promise.all(Array.from({ length: 8 }, () => server.pd.createQp({ sendCq: server.cq })));
    await expect(server.pd.createQp({ sendCq: server.cq })).rejects.toMatchObject({ errno: 'ENOMEM' });
    const here = await client.pd.createQp({ sendCq: client.cq });
    await connect(here, qps[0]);
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
    await qps[7].close();
    await expect(server.pd.createQp({ sendCq: server.cq })).resolves.toBeDefined();
  });

  test('no packet makes a queue pair but the first one to queue pair 1, which is the connection manager’s: all are counted', async () => {
    const { site, server } = await connected();
    const packets = Array.from({ length: 5000 }, (_, i) =>
      request(Opcode.UD_SEND_ONLY, i % 2, i, {
        deth: { qkey: 0x8001_0000, srcQpn: 1 },
        payload: new Uint8Array(256),
      }),
    );
    await site.inject(server.device, ATTACKER, packets);
    const counters = await server.device.counters();
    expect(counters.unknownQp).toBe(2500);
    const { malformed, received } = await server.device.connections.call('cmCounters');
    expect(malformed + counters.outOfBuffer).toBe(2500);
    expect([malformed > 0, received]).toEqual([true, 0]);
  });
});

describe('A5: others slowed down', () => {
  test.each(['auto', 'off'] as const)(
    'forged packets draw fewer packets than they are: one NAK for all packets ahead, one ACK for those behind; keepEarly %s',
    async (keepEarly) => {
      const { site, server, client, here, there } = await connected('RC', keepEarly);
      const { rqPsn } = await psnsOf(there);
      const before = (await there.counters()).sentPackets;
      await site.inject(
        server.device,
        CLIENT,
        Array.from({ length: 10_000 }, (_, i) =>
          evilWrite(there, psnAdd(rqPsn, i % 2 === 0 ? 1 + i : -1 - i), server.mr),
        ),
      );
      const drawn = (await there.counters()).sentPackets - before;
      // ACKs merge within a batch; each batch may have one.
      expect(drawn).toBeLessThan(200);
      expect((await there.counters()).outOfSeqRequest).toBe(5000);
      // A responder that keeps takes the next made-up packet for the client's (docs/security.md, A1 and A2).
      if (keepEarly === 'off') expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
    },
  );

  test('a client that READs all it can does not keep another one waiting', async () => {
    const { site, server, client, here } = await connected();
    const greedy = await site.side('10.0.0.3');
    const [there2, here2] = [
      await server.pd.createQp({ sendCq: server.cq }),
      await greedy.pd.createQp({ sendCq: greedy.cq }),
    ];
    await connect(here2, there2);
    const reads = () => {
      while (here2.sendPending < 16) {
        const sgList = [{ mr: greedy.mr, length: 8192 }];
        here2.postSend({ opcode: 'RDMA_READ', signaled: true, sgList, remote: server.mr.remote() });
      }
    };
    let done = 0;
    let over = false;
    const greed = (async () => {
      for (reads(); !over; reads()) {
        expect((await greedy.cq.next()).status).toBe('SUCCESS');
        done++;
      }
    })();
    const waits: number[] = [];
    for (let i = 0; i < 100; i++) {
      const before = done;
      expect(await write(client, here, i, server.mr.remote())).toBe('SUCCESS');
      waits.push(done - before);
    }
    over = true;
    await greed;
    expect(done).toBeGreaterThan(16);
    // Turns of 128 packets: so 16 of its READs, of 8 packets each, between a request and its answer.
    waits.sort((a, b) => a - b);
    expect(waits[50]).toBeLessThanOrEqual(32);
  });
});

describe('A5 among clients of one SRQ', () => {
  test('not prevented: one of them can take all receives; the program is notified when few are left', async () => {
    const site = new Site();
    const [server, greedy, client] = await Promise.all(
      [SERVER, '10.0.0.3', CLIENT].map((address) => site.side(address)),
    );
    const events: string[] = [];
    server.device.onEvent(({ type }) => events.push(type));
    const srq = await server.pd.createSrq({ maxWr: 16, limit: 4 });
    const join = async (from: Side) => {
      const here = await from.pd.createQp({ sendCq: from.cq });
      await connect(here, await server.pd.createQp({ sendCq: server.cq, srq }));
      return here;
    };
    const [here, honest] = [await join(greedy), await join(client)];
    for (let i = 0; i < 8; i++) srq.postRecv({ wrId: i });
    for (let i = 0; i < 8; i++) {
      here.postSend({ opcode: 'SEND', signaled: true });
      expect((await greedy.cq.next()).status).toBe('SUCCESS');
    }
    expect(events).toContain('SRQ_LIMIT_REACHED');
    honest.postSend({ opcode: 'SEND', signaled: true });
    await expect.poll(async () => (await honest.counters()).receivedRnrErr).toBeGreaterThan(0);
    srq.postRecv({ wrId: 8 });
    expect((await client.cq.next()).status).toBe('SUCCESS');
  });
});

describe('A6: RDMA as an accomplice', () => {
  test('one-sided operations of peers are counted, by operation and connection', async () => {
    const { server, client, here, there } = await connected();
    for (let i = 0; i < 3; i++) {
      here.postSend({
        opcode: 'RDMA_READ',
        signaled: true,
        sgList: [{ mr: client.mr, length: 100 }],
        remote: server.mr.remote(),
      });
      expect((await client.cq.next()).status).toBe('SUCCESS');
    }
    expect(await write(client, here, 5, server.mr.remote())).toBe('SUCCESS');
    expect(await there.counters()).toMatchObject({ readRequests: 3, writeRequests: 1, completedReceives: 0 });
  });

  test('a connection gives peers only the rights it was opened with', async () => {
    const site = new Site();
    const [server, client] = [await site.side(SERVER), await site.side(CLIENT)];
    const there = await server.pd.createQp({ sendCq: server.cq });
    const here = await client.pd.createQp({ sendCq: client.cq });
    await here.connect(there.connectionData());
    await there.connect(here.connectionData(), { access: 0 });
    expect(await write(client, here, 5, server.mr.remote())).toBe('REM_INV_REQ_ERR');
    expect(server.memory[0]).toBe(0);
  });
});
