/** Connections of XRC by address and port: an initiator connects, a target of a domain accepts (IBTA vol 1 annex A14). */
import { CmAttribute, CmRejReason } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ADDRESSES, type Ends, equip, openEnds, text, watch } from '../testing/ends.ts';
import { CmId, type IdOptions } from './index.ts';

const PORT = 7471;
const XRC = { transport: 'XRC' } as const;
const bytes = (of: string) => new TextEncoder().encode(of);

const open = () => openEnds(1024, 1024, { experimental: ['xrc'] });

async function listener(ends: Ends, options: IdOptions = XRC): Promise<CmId> {
  const id = new CmId({ device: ends.b, ...options });
  await id.listen({ port: PORT });
  return id;
}

async function initiator(ends: Ends, options: IdOptions = XRC) {
  const id = new CmId({ device: ends.a, ...options });
  await id.resolveAddr({ host: ADDRESSES[1], port: PORT });
  await id.resolveRoute();
  return { id, ...(await equip(id)) };
}

/** A domain of the accepting device, with an SRQ and memory for what arrives. */
async function station({ b }: Ends) {
  const [pd, cq, domain] = [await b.allocPd(), await b.createCq(16), await b.openXrcDomain()];
  const srq = await pd.createSrq({ xrc: { domain, cq } });
  const mr = await pd.registerMr(new Uint8Array(4096), { access: { remoteWrite: true, remoteRead: true } });
  return { cq, domain, srq, mr };
}

async function connected(ends: Ends) {
  const listening = await listener(ends);
  const client = await initiator(ends);
  const server = await station(ends);
  const connecting = client.id.connect({ privateData: bytes('who'), retryCount: 3, initiatorDepth: 4 });
  const request = await listening.getRequest();
  const target = await request.createTarget(server.domain);
  await Promise.all([request.accept({ privateData: bytes('welcome') }), connecting]);
  return { client, server, request, target, listening };
}

test('an initiator sends to an SRQ of the domain, writes and reads', async () => {
  await using ends = await open();
  const { client, server, request, target } = await connected(ends);
  expect([client.qp.type, client.qp.state, target.state]).toEqual(['XRC_INI', 'RTS', 'RTS']);
  expect(request.target).toBe(target);
  expect(text(request.request!.privateData)).toMatch(/^who\0/);
  expect(text(client.id.replyData)).toMatch(/^welcome\0/);

  const remoteSrqn = server.srq.number!;
  server.srq.postRecv({ wrId: 5, sgList: [{ mr: server.mr, length: 64 }] });
  const arrived = server.cq.next();
  await client.qp.send(bytes('for that SRQ'), { remoteSrqn });
  const { status, wrId, byteLen } = await arrived;
  expect({ status, wrId: Number(wrId), byteLen }).toEqual({ status: 'SUCCESS', wrId: 5, byteLen: 12 });
  expect(text(server.mr.bytes(0, 12))).toBe('for that SRQ');

  client.mr.bytes(0, 7).set(bytes('written'));
  await client.qp.write({ mr: client.mr, length: 7 }, server.mr.remote(100), { remoteSrqn });
  await client.qp.read({ mr: client.mr, offset: 50, length: 7 }, server.mr.remote(100), { remoteSrqn });
  expect(text(client.mr.bytes(50, 7))).toBe('written');
});

test('each side has the parameters of both', async () => {
  await using ends = await open();
  const { client, target } = await connected(ends);
  const { attr: initiating } = await client.qp.query();
  expect(initiating).toMatchObject({ retryCnt: 3, maxRdAtomic: 4, destQpNum: target.qpNum, timeout: 17 });
  const { attr: taking } = await target.query();
  expect(taking).toMatchObject({ maxDestRdAtomic: 4, destQpNum: client.qp.qpNum, minRnrTimer: 12 });
});

test.each(['initiator', 'target'] as const)(
  'the %s disconnects: both ends come to the error state',
  async (side) => {
    await using ends = await open();
    const { client, request, target } = await connected(ends);
    await (side === 'initiator' ? client.id : request).disconnect();
    await Promise.all([client.id.disconnected, request.disconnected]);
    expect([client.qp.state, target.state]).toEqual(['ERR', 'ERR']);
  },
);

test('an id that is destroyed closes its target', async () => {
  await using ends = await open();
  const { request, server } = await connected(ends);
  await expect(server.domain.close()).rejects.toMatchObject({ errno: 'EBUSY' });
  await request.destroy();
  await server.srq.destroy();
  await server.domain.close();
});

test('the initiator hears of an accept that fails', async () => {
  await using ends = await open();
  const listening = await listener(ends);
  const client = await initiator(ends);
  const server = await station(ends);
  const connecting = client.id.connect();
  const request = await listening.getRequest();
  const target = await request.createTarget(server.domain);
  const outcome = expect(request.accept()).rejects.toMatchObject({ errno: 'EINVAL' });
  await connecting;
  await target.close(); // Before RTU takes it to RTS.
  await outcome;
  await client.id.disconnected;
});

test('the initiator hears of a target that disconnects, and is destroyed at once', async () => {
  await using ends = await open();
  const { client, request } = await connected(ends);
  const disconnecting = request.disconnect();
  await request.destroy();
  await Promise.all([disconnecting, client.id.disconnected]);
});

test('an initiator stays connected where the id of its target is destroyed', async () => {
  await using ends = await open();
  const { client, request } = await connected(ends);
  const counts = watch(ends);
  await request.destroy();
  await client.id.disconnect();
  expect(counts.get(CmAttribute.DREQ)).toBe(1);
});

test('of two targets at once, one is refused, and the other goes with the id', async () => {
  await using ends = await open();
  const listening = await listener(ends);
  const client = await initiator(ends);
  const server = await station(ends);
  const connecting = client.id.connect().catch(() => {});
  const request = await listening.getRequest();
  const made = [request.createTarget(server.domain), request.createTarget(server.domain)];
  expect((await Promise.allSettled(made)).map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  await expect(made[1]).rejects.toMatchObject({ code: 'ERR_ROCE_CM_STATE' });
  await request.destroy();
  await connecting;
  await server.srq.destroy();
  await server.domain.close();
});

test.each([
  ['RC', XRC, {}],
  ['XRC', {}, XRC],
] as const)('a request of %s to a listener of the other transport is refused', async (_, options, asking) => {
  await using ends = await open();
  await listener(ends, options);
  const { id } = await initiator(ends, asking);
  await expect(id.connect()).rejects.toMatchObject({
    code: 'ERR_ROCE_CM_REFUSED',
    status: CmRejReason.INVALID_TRANSPORT_TYPE,
  });
});

test('wrong calls are refused, and a request waits on', async () => {
  await using ends = await open();
  expect(() => new CmId({ ...XRC, portSpace: 'UDP' })).toThrow(
    expect.objectContaining({ attribute: 'portSpace' }),
  );
  const listening = await listener(ends);
  const client = await initiator(ends);
  const server = await station(ends);
  await expect(client.id.createTarget(server.domain)).rejects.toMatchObject({ code: 'ERR_ROCE_CM_STATE' });
  const connecting = client.id.connect();
  const request = await listening.getRequest();
  await expect(request.accept()).rejects.toThrow(/createTarget/);
  await expect(equip(request)).rejects.toThrow(/createTarget/);
  await expect(request.createTarget({} as never)).rejects.toMatchObject({ attribute: 'domain' });
  const foreign = await ends.a.openXrcDomain();
  await expect(request.createTarget(foreign)).rejects.toMatchObject({ errno: 'EINVAL', attribute: 'domain' });
  await request.createTarget(server.domain);
  await expect(request.createTarget(server.domain)).rejects.toMatchObject({ code: 'ERR_ROCE_CM_STATE' });
  await Promise.all([request.accept(), connecting]);
});

test('without experimental xrc, there is no initiator', async () => {
  await using ends = await openEnds();
  await expect(initiator(ends)).rejects.toMatchObject({ errno: 'EOPNOTSUPP' });
});
