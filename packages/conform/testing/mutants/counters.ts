/** Ways to break counters, and a send queue that is drained. */
import type { Mutant } from '../broken-device.ts';

/** The device counts so many times what it should. */
const counts = (name: string, times: number): Mutant => ({
  seenBy: ['CNT-01'],
  counters: (all) => ({ ...all, [name]: all[name] * times }),
});

export const counterMutants: Readonly<Record<string, Mutant>> = {
  'gaps are not counted': counts('out_of_seq_request', 0),
  'gaps are counted twice': counts('out_of_seq_request', 2),
  'repeated requests are not counted': counts('duplicate_request', 0),
  'RNR NAKs are not counted': counts('rcvd_rnr_err', 0),
  'sequence NAKs are counted twice': counts('rcvd_seq_err', 2),
  'a drained send queue goes on': {
    seenBy: ['STA-07'],
    made: (pair) => {
      const drain = pair.drain.bind(pair);
      pair.drain = () => {
        drain();
        pair.rc.requester.draining = false;
      };
    },
  },
  'a drained send queue raises nothing': {
    seenBy: ['STA-07'],
    events: (events) => events.filter((event) => event !== 'SQ_DRAINED'),
  },
  'a drained send queue raises its event twice': {
    seenBy: ['STA-07'],
    events: (events) => events.flatMap((event) => (event === 'SQ_DRAINED' ? [event, event] : [event])),
  },
  'a drained send queue raises its event at once': {
    seenBy: ['STA-07'],
    made: (pair) => {
      const drain = pair.drain.bind(pair);
      pair.drain = () => {
        drain();
        pair.rc.events.push('SQ_DRAINED');
      };
    },
  },
  'a drained send queue stands still for ever': {
    seenBy: ['STA-07'],
    made: (pair) => {
      pair.resume = () => {};
    },
  },
};
