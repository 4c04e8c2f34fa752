/**
 * Attributes that each step between states requires and may carry, and those that a query shows: written from ibv_modify_qp(3),
 * Linux `qp_state_table` and IBTA vol 1 §11.2.5.2, §11.2.5.3, not from the tables that it judges.
 */
import { describe, expect, test } from 'vitest';
import { QP_STATES, type QpState, type QpType } from '../src/index.ts';
import { statesFrom, transition, VALID_IN_STATE } from '../src/transitions.ts';

const STATES: readonly QpState[] = QP_STATES;
const ALT = 'altAhAttr altPkeyIndex altPortNum altTimeout';

/**
 * Type, from, to, required, optional. `rateLimit` of other types than RAW_PACKET is this device's own, and so is `cap`, which every step
 * takes but those of XRC_TGT.
 */
const STEPS: [QpType, QpState, QpState, string, string][] = [
  ['UD', 'RESET', 'INIT', 'pkeyIndex portNum qkey', ''],
  ['UD', 'INIT', 'INIT', '', 'pkeyIndex portNum qkey'],
  ['UD', 'INIT', 'RTR', '', 'pkeyIndex qkey'],
  ['UD', 'RTR', 'RTS', 'sqPsn', 'curQpState qkey rateLimit'],
  ['UD', 'RTS', 'RTS', '', 'curQpState qkey rateLimit'],
  ['UD', 'RTS', 'SQD', '', 'enSqdAsyncNotify'],
  ['UD', 'SQD', 'RTS', '', 'curQpState qkey'],
  ['UD', 'SQD', 'SQD', '', 'pkeyIndex qkey'],
  ['UD', 'SQE', 'RTS', '', 'curQpState qkey'],

  ['UC', 'RESET', 'INIT', 'pkeyIndex portNum qpAccessFlags', ''],
  ['UC', 'INIT', 'INIT', '', 'pkeyIndex portNum qpAccessFlags'],
  ['UC', 'INIT', 'RTR', 'ahAttr pathMtu destQpNum rqPsn', `${ALT} qpAccessFlags pkeyIndex`],
  ['UC', 'RTR', 'RTS', 'sqPsn', `curQpState ${ALT} qpAccessFlags pathMigState rateLimit`],
  ['UC', 'RTS', 'RTS', '', `curQpState ${ALT} qpAccessFlags pathMigState rateLimit`],
  ['UC', 'RTS', 'SQD', '', 'enSqdAsyncNotify'],
  ['UC', 'SQD', 'RTS', '', `curQpState ${ALT} qpAccessFlags pathMigState`],
  ['UC', 'SQD', 'SQD', '', `ahAttr ${ALT} qpAccessFlags pkeyIndex pathMigState`],
  ['UC', 'SQE', 'RTS', '', 'curQpState qpAccessFlags'],

  ['RC', 'RESET', 'INIT', 'pkeyIndex portNum qpAccessFlags', ''],
  ['RC', 'INIT', 'INIT', '', 'pkeyIndex portNum qpAccessFlags'],
  [
    'RC',
    'INIT',
    'RTR',
    'ahAttr pathMtu destQpNum rqPsn maxDestRdAtomic minRnrTimer',
    `${ALT} qpAccessFlags pkeyIndex rateLimit`,
  ],
  [
    'RC',
    'RTR',
    'RTS',
    'sqPsn timeout retryCnt rnrRetry maxRdAtomic',
    `curQpState ${ALT} qpAccessFlags pathMigState minRnrTimer rateLimit`,
  ],
  ['RC', 'RTS', 'RTS', '', `curQpState ${ALT} qpAccessFlags pathMigState minRnrTimer rateLimit`],
  ['RC', 'RTS', 'SQD', '', 'enSqdAsyncNotify'],
  ['RC', 'SQD', 'RTS', '', `curQpState ${ALT} qpAccessFlags pathMigState minRnrTimer`],
  [
    'RC',
    'SQD',
    'SQD',
    '',
    `portNum ahAttr timeout retryCnt rnrRetry maxRdAtomic maxDestRdAtomic ${ALT} qpAccessFlags pkeyIndex minRnrTimer pathMigState`,
  ],

  ['XRC_INI', 'RESET', 'INIT', 'pkeyIndex portNum qpAccessFlags', ''],
  ['XRC_INI', 'INIT', 'INIT', '', 'pkeyIndex portNum qpAccessFlags'],
  ['XRC_INI', 'INIT', 'RTR', 'ahAttr pathMtu destQpNum rqPsn', `${ALT} qpAccessFlags pkeyIndex`],
  [
    'XRC_INI',
    'RTR',
    'RTS',
    'timeout retryCnt rnrRetry sqPsn maxRdAtomic',
    `curQpState ${ALT} qpAccessFlags pathMigState rateLimit`,
  ],
  ['XRC_INI', 'RTS', 'RTS', '', `curQpState qpAccessFlags ${ALT} pathMigState rateLimit`],
  ['XRC_INI', 'RTS', 'SQD', '', 'enSqdAsyncNotify'],
  ['XRC_INI', 'SQD', 'RTS', '', `curQpState ${ALT} qpAccessFlags pathMigState`],
  [
    'XRC_INI',
    'SQD',
    'SQD',
    '',
    `portNum ahAttr timeout retryCnt rnrRetry maxRdAtomic ${ALT} qpAccessFlags pkeyIndex pathMigState`,
  ],

  ['XRC_TGT', 'RESET', 'INIT', 'pkeyIndex portNum qpAccessFlags', ''],
  ['XRC_TGT', 'INIT', 'INIT', '', 'pkeyIndex portNum qpAccessFlags'],
  [
    'XRC_TGT',
    'INIT',
    'RTR',
    'ahAttr pathMtu destQpNum rqPsn maxDestRdAtomic minRnrTimer',
    `${ALT} qpAccessFlags pkeyIndex`,
  ],
  ['XRC_TGT', 'RTR', 'RTS', 'timeout sqPsn', `curQpState ${ALT} qpAccessFlags minRnrTimer pathMigState`],
  ['XRC_TGT', 'RTS', 'RTS', '', `curQpState qpAccessFlags ${ALT} pathMigState minRnrTimer`],
  ['XRC_TGT', 'RTS', 'SQD', '', 'enSqdAsyncNotify'],
  ['XRC_TGT', 'SQD', 'RTS', '', `curQpState ${ALT} qpAccessFlags minRnrTimer pathMigState`],
  [
    'XRC_TGT',
    'SQD',
    'SQD',
    '',
    `portNum ahAttr timeout maxDestRdAtomic ${ALT} qpAccessFlags pkeyIndex minRnrTimer pathMigState`,
  ],

  ['RAW_PACKET', 'RESET', 'INIT', 'portNum', ''],
  ['RAW_PACKET', 'INIT', 'INIT', '', ''],
  ['RAW_PACKET', 'INIT', 'RTR', '', ''],
  ['RAW_PACKET', 'RTR', 'RTS', '', 'rateLimit'],
  ['RAW_PACKET', 'RTS', 'RTS', '', 'rateLimit'],
  ['RAW_PACKET', 'RTS', 'SQD', '', ''],
  ['RAW_PACKET', 'SQD', 'RTS', '', ''],
  ['RAW_PACKET', 'SQD', 'SQD', '', ''],
  ['RAW_PACKET', 'SQE', 'RTS', '', ''],
];

const sorted = (names: string) => names.split(' ').filter(Boolean).sort();

describe.each(['RC', 'UC', 'UD', 'GSI', 'RAW_PACKET', 'XRC_INI', 'XRC_TGT'] as const)('%s', (type) => {
  const steps = STEPS.filter(([of]) => of === (type === 'GSI' ? 'UD' : type));

  test.each(steps)('%s from %s to %s', (_type, from, to, required, optional) => {
    const step = transition(type, from, to);
    expect([...step!.required].sort()).toEqual(sorted(required));
    expect([...step!.optional].sort()).toEqual(sorted(type === 'XRC_TGT' ? optional : `${optional} cap`));
  });

  test.each(STATES)('from %s: to RESET always, to ERR but from RESET, and else as listed', (from) => {
    const listed = steps.filter(([, of]) => of === from).map(([, , to]) => to);
    const allowed = new Set<QpState>([...listed, 'RESET', ...(from === 'RESET' ? [] : ['ERR' as const])]);
    expect(statesFrom(type, from).sort()).toEqual([...allowed].sort());
    for (const to of ['RESET', 'ERR'] as const) {
      if (!allowed.has(to)) continue;
      expect(transition(type, from, to)).toEqual({ required: [], optional: [] });
    }
  });
});

describe('a query shows', () => {
  const connected = 'pkeyIndex portNum qpAccessFlags';
  // The alternate path while there is one, the state of migration where paths migrate.
  const ucRtr = `${connected} ahAttr pathMtu destQpNum rqPsn ${ALT}`;
  const ucRts = `${ucRtr} sqPsn pathMigState rateLimit`;
  const rcRtr = `${ucRtr} maxDestRdAtomic minRnrTimer`;
  const rcRts = `${rcRtr} sqPsn timeout retryCnt rnrRetry maxRdAtomic rateLimit pathMigState`;
  const ud = 'pkeyIndex portNum qkey';
  const rows: [QpType, Record<QpState, string>][] = [
    [
      'RC',
      { RESET: '', INIT: connected, RTR: rcRtr, RTS: rcRts, SQD: `${rcRts} sqDraining`, SQE: '', ERR: '' },
    ],
    [
      'UC',
      {
        RESET: '',
        INIT: connected,
        RTR: ucRtr,
        RTS: ucRts,
        SQD: `${ucRts} sqDraining`,
        SQE: ucRts,
        ERR: '',
      },
    ],
    // ibv_query_qp(3) has no table of these: what the steps to the state have set.
    [
      'XRC_INI',
      {
        RESET: '',
        INIT: connected,
        RTR: ucRtr,
        RTS: `${ucRts} timeout retryCnt rnrRetry maxRdAtomic`,
        SQD: `${ucRts} timeout retryCnt rnrRetry maxRdAtomic sqDraining`,
        SQE: '',
        ERR: '',
      },
    ],
    [
      'XRC_TGT',
      {
        RESET: '',
        INIT: connected,
        RTR: rcRtr,
        RTS: `${rcRtr} sqPsn timeout pathMigState`,
        SQD: `${rcRtr} sqPsn timeout pathMigState sqDraining`,
        SQE: '',
        ERR: '',
      },
    ],
    ...(['UD', 'GSI'] as const).map((type): [QpType, Record<QpState, string>] => [
      type,
      {
        RESET: '',
        INIT: ud,
        RTR: ud,
        RTS: `${ud} sqPsn rateLimit`,
        SQD: `${ud} sqPsn rateLimit sqDraining`,
        SQE: `${ud} sqPsn rateLimit`,
        ERR: '',
      },
    ]),
    [
      'RAW_PACKET',
      {
        RESET: '',
        INIT: 'portNum',
        RTR: 'portNum',
        RTS: 'portNum rateLimit',
        SQD: 'portNum rateLimit sqDraining',
        SQE: 'portNum rateLimit',
        ERR: '',
      },
    ],
  ];
  test.each(rows)('of %s, in each state, what is valid there', (type, row) => {
    for (const state of STATES) {
      expect([...VALID_IN_STATE[type][state]].sort(), state).toEqual(sorted(row[state]));
    }
  });
});
