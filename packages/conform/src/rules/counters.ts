/** Counters of a device's port, held to the packets that it got (`hw_counters` of Linux: no verb reads those of one queue pair). */
import type { Case } from '../case.ts';
import { rule } from '../rule.ts';

/** What is counted, by the names that drivers have for it: rxe, mlx5, bnxt_re. */
const NAMES = {
  'packets out of sequence': ['out_of_seq_request', 'out_of_sequence', 'oos_drop_count'],
  'repeated requests': ['duplicate_request', 'dup_req'],
  'RNR NAKs': ['rcvd_rnr_err', 'rnr_nak_retry_err', 'rnr_naks_rcvd'],
  'sequence NAKs': ['rcvd_seq_err', 'packet_seq_err', 'seq_err_naks_rcvd'],
} as const;

type Counted = keyof typeof NAMES;
const KINDS = Object.keys(NAMES) as Counted[];

/** Times that each thing is done. */
const TIMES = 3;

/** Does each of the four things. */
async function happen(t: Case): Promise<void> {
  const s = await t.rc();
  for (let i = 0; i < TIMES; i++) {
    s.write(2 * i);
    await s.ack(2 * i);
    s.write(2 * i + 2);
    await s.nak('sequence', 2 * i + 1, 'a gap');
    s.write(2 * i);
    await s.ack(2 * i, 'a repeated WRITE');
    s.write(2 * i + 1);
    await s.ack(2 * i + 1);
  }
  for (const [i, syndrome] of [0x20 | 1, 0x60].entries()) {
    const requester = await t.req({ timeout: 20 });
    for (let n = 0; n < TIMES; n++) {
      const id = TIMES * i + n;
      await requester.post('send', { id, length: 8 });
      await requester.requests(1);
      requester.acknowledge(n, { syndrome });
      await requester.retransmits('RC_SEND_ONLY', n, 'wanted the SEND', t.waits.patience);
      requester.acknowledge(n);
      await requester.completed([`${id}:SUCCESS`], 'the SEND');
      await requester.all(10);
    }
  }
}

/** @throws Error if an agent does not give what it gave before: that says nothing of the device */
function countOf(counters: Record<string, number>, name: string): number {
  if (Object.hasOwn(counters, name)) return counters[name];
  throw new Error(`the agent answers counters without ${name}, which it had before`);
}

export const counterRules = [
  rule(
    'CNT-01',
    {
      title: 'counters agree with the packets: gaps, repeated requests, RNR NAKs, sequence NAKs',
      section: 'Linux, hw_counters',
      should: true,
      needs: ['rc', 'write', 'post', 'completions', 'counters'],
      text: 'Operators find a network that loses packets by these counters. They count for the whole port: the rule needs a device that nobody else uses.',
    },
    async (t) => {
      const idle = await t.counters();
      const nameOf = (kind: Counted) => NAMES[kind].find((name) => Object.hasOwn(idle, name));
      if (!KINDS.some(nameOf)) t.skip('the device has no counter for gaps, repetitions or NAKs');
      await t.pass(t.waits.quiet);
      const before = await t.counters();
      for (const name of KINDS.map(nameOf))
        if (name !== undefined && countOf(before, name) !== idle[name])
          t.skip(`${name} counts while the tester is silent: another program uses the device`);
      await happen(t);
      const after = await t.counters();
      for (const kind of KINDS) {
        const name = nameOf(kind);
        if (name === undefined) {
          t.note(`${kind}: no counter`);
          continue;
        }
        const counted = countOf(after, name) - countOf(before, name);
        t.note(`${name}: ${counted} for ${TIMES}`);
        t.want(counted >= TIMES, `${name}: fewer than there were`);
        t.want(counted <= TIMES, `${name}: more than there were`);
      }
    },
  ),
];
