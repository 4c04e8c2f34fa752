/** Ways to break shared receive queues. */
import type { ModelSrq, Mutant } from '../broken-device.ts';

const isRnrNak = (syndrome: number | undefined): boolean => ((syndrome ?? 0) & 0x60) === 0x20;

function takesAlong(): Mutant {
  let latest: ModelSrq | undefined;
  return {
    seenBy: ['SRQ-01'],
    shared: (srq) => {
      latest = srq;
    },
    made: (pair) => {
      const fail = pair.fail.bind(pair);
      pair.fail = () => {
        fail();
        latest?.queue.waiting.splice(0);
      };
    },
  };
}

export const sharedMutants: Readonly<Record<string, Mutant>> = {
  'an empty SRQ draws nothing': {
    seenBy: ['RNR-05'],
    send: (packet) => (isRnrNak(packet.aeth?.syndrome) ? [] : [packet]),
  },
  'an SRQ gives the newest receive first': {
    seenBy: ['SRQ-03'],
    shared: (srq) => {
      const post = srq.postReceive.bind(srq);
      srq.postReceive = (receive) => {
        post(receive);
        srq.queue.waiting.unshift(...srq.queue.waiting.splice(-1));
      };
    },
  },
  'the limit of an SRQ raises nothing': {
    seenBy: ['SRQ-02', 'SRQ-04'],
    shared: (srq) => {
      srq.setLimit = () => {};
    },
  },
  'the limit of an SRQ raises one event in a life': {
    seenBy: ['SRQ-04'],
    shared: (srq) => {
      const setLimit = srq.setLimit.bind(srq);
      let isSet = false;
      srq.setLimit = (limit) => {
        if (!isSet) setLimit(limit);
        isSet = true;
      };
    },
  },
  'the limit of an SRQ raises an event with each receive': {
    seenBy: ['SRQ-02'],
    shared: (srq) => {
      srq.setLimit = (limit) => {
        Object.defineProperty(srq.queue, 'limit', { get: () => limit, set: () => {} });
      };
    },
  },
  'the limit of an SRQ raises its event one receive too early': {
    seenBy: ['SRQ-02'],
    shared: (srq) => {
      const setLimit = srq.setLimit.bind(srq);
      srq.setLimit = (limit) => setLimit(limit + 1);
    },
  },
  'a queue pair of an SRQ fails in silence': {
    seenBy: ['STA-08'],
    events: (events) => events.filter((event) => event !== 'QP_LAST_WQE_REACHED'),
  },
  'a queue pair that fails takes the receives of its SRQ': takesAlong(),
};
