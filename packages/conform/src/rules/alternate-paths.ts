/** The connection manager's messages about alternate paths, and MRAs that answer nothing (IBTA vol 1 §12.6.6, §12.8). */
import { CmRejReason, gidFromText } from '@node-roce/wire';
import type { Case } from '../case.ts';
import type { CmSession } from '../cm-session.ts';
import { type RuleSpec, rule } from '../rule.ts';
import { isTaken } from './service.ts';

const pathRule = (
  id: string,
  spec: Omit<RuleSpec, 'needs'>,
  play: (c: CmSession, t: Case) => Promise<void>,
) => rule(id, { ...spec, needs: ['listener'] }, async (t) => play(await t.cm(), t));

/** The second path is the first one again: a tester has one address. */
const alternatePath = ({ line: { tester, device } }: Case) => ({
  alternateLocalLid: 0xffff,
  alternateRemoteLid: 0xffff,
  alternateLocalGid: gidFromText(tester.ip),
  alternateRemoteGid: gidFromText(device.ip),
  alternateHopLimit: 64,
  alternateAckTimeout: 14,
});

const { INVALID_ALT_GID, INVALID_ALT_LID, INVALID_ALT_SL, INVALID_ALT_TRAFFIC_CLASS, INVALID_ALT_HOP_LIMIT } =
  CmRejReason;
/** Reasons to refuse an alternate path. */
const NO_PATH: readonly number[] = [
  INVALID_ALT_GID,
  INVALID_ALT_LID,
  INVALID_ALT_SL,
  INVALID_ALT_TRAFFIC_CLASS,
  INVALID_ALT_HOP_LIMIT,
  CmRejReason.INVALID_ALT_PACKET_RATE,
  CmRejReason.INVALID_ALT_FLOW_LABEL,
];

/** The queue pair of the connection still answers: a SEND. */
async function goesOn(c: CmSession, t: Case, after: string): Promise<void> {
  c.send('RC_SEND_ONLY', 0, { payload: new Uint8Array(16) });
  const taken = await c.packet((entry) => isTaken(entry) && c.at(entry) === 0);
  t.want(taken !== undefined, `${after}: the connection is gone`);
}

export const alternatePathRules = [
  pathRule(
    'CM-25',
    {
      title: 'a LAP is answered with an APR or not at all, and the connection goes on',
      section: '12.8',
      text: 'Devices without path migration are asked for it all the same, by peers that have it.',
    },
    async (c, t) => {
      const rep = await c.established();
      if (rep === undefined) return;
      c.toPeer({
        name: 'LAP',
        remoteQpn: rep.localQpn,
        remoteCmResponseTimeout: 15,
        ...alternatePath(t),
      });
      const answers = await c.all();
      const apr = answers.find((message) => message.name === 'APR');
      t.note(apr?.name === 'APR' ? `APR status ${apr.status}` : 'no APR');
      const others = answers.filter(({ name }) => name !== 'APR');
      t.want(others.length === 0, `LAP: answered with ${c.list(others)}`);
      await goesOn(c, t, 'a LAP');
    },
  ),
  pathRule(
    'CM-38',
    {
      title: 'a REQ with an alternate path is accepted, or refused for this path',
      section: '12.6.5, 12.6.7.2',
      text: 'A client that offers two paths has to learn whether it has a connection.',
    },
    async (c, t) => {
      c.req(alternatePath(t));
      const answer = await c.next();
      if (answer?.name === 'REP') {
        c.rep = answer;
        t.note('accepted');
        await c.rtu();
        await goesOn(c, t, 'a REQ with an alternate path');
        return;
      }
      const is = answer?.name === 'REJ' && NO_PATH.includes(answer.reason);
      t.want(is, `wanted REP, or REJ of the alternate path, got ${answer ? c.list([answer]) : 'silence'}`);
      if (answer?.name === 'REJ') t.note(`REJ reason ${answer.reason}`);
    },
  ),
  pathRule(
    'CM-39',
    {
      title: 'an MRA of a connection that is open changes nothing',
      section: '12.6.6, 12.9.6',
      text: 'An MRA that was overtaken by RTU comes when there is nothing left to wait for.',
    },
    async (c, t) => {
      if ((await c.established()) === undefined) return;
      for (const messageMraed of [0, 1, 2]) c.toPeer({ name: 'MRA', messageMraed, serviceTimeout: 18 });
      const answers = await c.all();
      t.want(answers.length === 0, `MRA: answered with ${c.list(answers)}`);
      await goesOn(c, t, 'an MRA');
    },
  ),
];
