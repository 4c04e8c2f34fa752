/** The situations that the runs are for, with the least number of times in 40 seeds: about a third of what happens. A fraction is for longer runs. */

const MESSAGES = ['REQ', 'REP', 'RTU', 'REJ', 'DREQ', 'DREP', 'MRA', 'SIDR_REQ', 'SIDR_REP'];

/** States of packages/cm in which the program destroys an id. */
const DESTROYED: Record<string, number> = {
  REQ_SENT: 15,
  REP_WAIT: 8,
  REP_RCVD: 6,
  REQ_RCVD: 10,
  REP_SENT: 15,
  RTU_WAIT: 3,
  ESTABLISHED: 70,
  DREQ_SENT: 1,
  DREQ_RCVD: 15,
  TIMEWAIT: 8,
};

export const FLOORS: Record<string, number> = {
  ...Object.fromEntries(
    MESSAGES.flatMap((name) => ['lost', 'copied', 'late'].map((fate) => [`${fate} ${name}`, 5])),
  ),
  ...Object.fromEntries(
    Object.entries(DESTROYED).map(([state, least]) => [`product destroy in ${state}`, least]),
  ),
  'connects while the other side does': 200,
  'product hears established': 250,
  restarts: 4,
  // Rejections: by the program, for nobody who listens, taken back, stale, of a REP for nobody.
  'product REJ 28': 70,
  'product REJ 8': 15,
  'product REJ 4': 30,
  'product REJ 10': 6,
  'product REJ 6': 30,
  'model REJ 10': 15,
  'product hears disconnected stale': 0.5,
  'product hears disconnected timeout': 2,
  'product hears unreachable active': 5,
  'product hears unreachable passive': 5,
  'requests dropped for the backlog': 10,
  // Both disconnect; copies of DREQ in each state after it; a REJ that crosses a DREQ.
  'product takes DREQ in DREQ_SENT': 30,
  'product takes DREQ in TIMEWAIT': 50,
  'product takes DREQ in NONE': 30,
  'product takes DREP in TIMEWAIT': 60,
  'product takes DREQ in RTU_WAIT': 1,
  'product takes REJ in DREQ_SENT': 0.2,
  'product takes REJ in ESTABLISHED': 4,
  'product takes REJ in REP_SENT': 10,
  // Lost RTUs, data in their place, copies of the REQ in each state after it.
  'product takes REP in ESTABLISHED': 40,
  'product takes REP in NONE': 30,
  'product takes data in REP_SENT': 20,
  'product takes data in RTU_WAIT': 2,
  'product takes REQ in REQ_RCVD': 80,
  'product takes REQ in REP_SENT': 3,
  'product takes REQ in TIMEWAIT': 1,
  'product takes RTU in DREQ_SENT': 2,
  // More time asked for, by either side, for REQ and REP, and again.
  'product MRA': 130,
  'product takes MRA in REQ_SENT': 130,
  'product takes MRA in REP_SENT': 40,
  'product takes LAP in ESTABLISHED': 30,
  // Forgeries of each kind are many; these need a state that is short.
  'forged DREQ for another queue pair': 30,
  'forged REJ of another id': 30,
  'forged REP of another id': 30,
  'forged RTU before REP': 2,
  'forged DREP without DREQ': 20,
  'forged REJ in TIMEWAIT': 3,
  questions: 80,
  'product hears question': 50,
  'product hears answer': 35,
  'product hears unanswered': 1,
};
