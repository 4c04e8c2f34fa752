/** Remote keys, regions, and what a queue pair allows (IBTA vol 1 §9.7.4.1.3 … .5). */
import { bytes, same } from '../device-side.ts';
import { type Rule, type RuleSpec, rule } from '../rule.ts';

const REACH = 'A peer must not reach memory that was not opened to it.';
const ALLOW = 'The program chose what its peer may do.';

/** A request that draws a remote access NAK. */
function noAccess(id: string, title: string, play: Rule['play'], spec: Partial<RuleSpec> = {}): Rule {
  return rule(id, { title, section: '9.7.4.1.5', needs: ['rc', 'write'], text: REACH, ...spec }, play);
}

/** A request that draws an invalid request NAK. */
function notAllowed(id: string, title: string, play: Rule['play'], spec: Partial<RuleSpec> = {}): Rule {
  const needs = ['rc', 'attributes'] as const;
  return rule(id, { title, section: '9.7.4.1.3', needs, text: ALLOW, ...spec }, play);
}

export const keyRules = [
  noAccess(
    'KEY-01',
    'a key that does not exist is refused, and ends the connection',
    async (t) => {
      const s = await t.rc();
      s.write(0, bytes(8), 0, { reth: { rkey: (s.rkey ^ 0x5500) >>> 0 } });
      await s.nak('access', 0);
      await s.dead(1);
    },
    { first: true },
  ),
  noAccess(
    'KEY-02',
    'a WRITE whose last byte is past the region is refused',
    async (t) => {
      const s = await t.rc();
      s.write(0, bytes(8), s.spec.size - 7);
      await s.nak('access', 0);
    },
    { first: true },
  ),
  noAccess(
    'KEY-03',
    'a WRITE that begins before the region is refused',
    async (t) => {
      t.use('bounds');
      const s = await t.rc();
      if (s.va === 0n) t.skip('the region begins at address 0');
      s.write(0, bytes(8), -1);
      await s.nak('access', 0);
    },
    { needs: ['rc', 'write', 'bounds'] },
  ),
  noAccess(
    'KEY-04',
    'an address that wraps past 2^64 is refused',
    async (t) => {
      const s = await t.rc();
      s.read(0, 64, 0, { reth: { va: 0xffff_ffff_ffff_fff8n } });
      await s.nak('access', 0);
    },
    { needs: ['rc', 'read'], hostile: true },
  ),
  noAccess(
    'KEY-05',
    'the whole range of a WRITE is checked with its first packet',
    async (t) => {
      const s = await t.rc();
      const at = s.spec.size - 1024;
      const before = await s.peek(at, 1024);
      s.writeFirst(0, bytes(1024), 2048, at, { ackReq: true });
      await s.nak('access', 0);
      t.want(same(before, await s.peek(at, 1024)), 'the first packet was written');
    },
    { needs: ['rc', 'write', 'memory'], first: true },
  ),
  noAccess(
    'KEY-06',
    'a WRITE to a region without remote write is refused',
    async (t) => {
      const s = await t.rc({ regionAccess: ['read'] });
      s.write(0, bytes(8));
      await s.nak('access', 0);
    },
    { needs: ['rc', 'write', 'regions'], first: true },
  ),
  noAccess(
    'KEY-07',
    'a READ of a region without remote read is refused',
    async (t) => {
      const s = await t.rc({ regionAccess: ['write'] });
      s.read(0, 8);
      await s.nak('access', 0);
    },
    { needs: ['rc', 'read', 'regions'] },
  ),
  noAccess(
    'KEY-08',
    'an atomic on a region without remote atomic is refused',
    async (t) => {
      const s = await t.rc({ regionAccess: ['write', 'read'] });
      s.fetchAdd(0, 1n);
      await s.nak('access', 0);
    },
    { needs: ['rc', 'atomic', 'regions'] },
  ),
  noAccess(
    'KEY-16',
    'a key of a region that was deregistered is refused',
    async (t) => {
      const s = await t.rc();
      s.write(0);
      await s.ack(0);
      await s.deregister();
      s.write(1);
      await s.nak('access', 1);
    },
    { section: '10.6.7', needs: ['rc', 'write', 'deregister'] },
  ),
  notAllowed(
    'ACC-01',
    'a READ on a queue pair that allows none is an invalid request',
    async (t) => {
      const s = await t.rc({ access: ['write'] });
      s.read(0, 8);
      await s.nak('invalid', 0);
      await s.dead(1);
    },
    { needs: ['rc', 'read', 'attributes'], first: true },
  ),
  notAllowed(
    'ACC-02',
    'a WRITE on a queue pair that allows none is an invalid request',
    async (t) => {
      const s = await t.rc({ access: ['read'] });
      s.write(0, bytes(8));
      await s.nak('invalid', 0);
    },
    { needs: ['rc', 'write', 'attributes'] },
  ),
  notAllowed(
    'ACC-03',
    'an atomic on a queue pair that allows none is an invalid request',
    async (t) => {
      const s = await t.rc({ access: ['write', 'read'] });
      s.fetchAdd(0, 1n);
      await s.nak('invalid', 0);
    },
    { needs: ['rc', 'atomic', 'attributes'] },
  ),
  notAllowed(
    'ACC-04',
    'a READ where no READs were agreed on is an invalid request',
    async (t) => {
      const s = await t.rc({ maxDestRdAtomic: 0 });
      s.read(0, 8);
      await s.nak('invalid', 0);
    },
    { section: '9.7.4.1.4', needs: ['rc', 'read', 'attributes'] },
  ),
];
