// The state walks of ibv_modify_qp(3) for each transport service type, with the attributes that its tables require and
// no more; and at each step the attributes that are valid there by ibv_query_qp(3).
import * as v from 'node-roce/ibverbs';

const dev = v.ibv_get_device_list().find((device) => device.name === 'lo');
const context = await v.ibv_open_device(dev, { address: '127.0.48.1' });
if (!context) throw v.lastError();
const pd = await v.ibv_alloc_pd(context);
const cq = await v.ibv_create_cq(context, 16, null, null, 0);
const gid = {};
if (await v.ibv_query_gid(context, 1, 0, gid)) throw v.lastError();

/** The constants by their names, as the tables print them. */
const CONSTANTS = { ...v };

/** The tables: next state, required attributes. */
const TABLES = {
  IBV_QPT_UD: [
    ['IBV_QPS_INIT', 'IBV_QP_STATE, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY'],
    ['IBV_QPS_RTR', 'IBV_QP_STATE'],
    ['IBV_QPS_RTS', 'IBV_QP_STATE, IBV_QP_SQ_PSN'],
  ],
  IBV_QPT_UC: [
    ['IBV_QPS_INIT', 'IBV_QP_STATE, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS'],
    ['IBV_QPS_RTR', 'IBV_QP_STATE, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN'],
    ['IBV_QPS_RTS', 'IBV_QP_STATE, IBV_QP_SQ_PSN'],
  ],
  IBV_QPT_RC: [
    ['IBV_QPS_INIT', 'IBV_QP_STATE, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS'],
    [
      'IBV_QPS_RTR',
      'IBV_QP_STATE, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER',
    ],
    [
      'IBV_QPS_RTS',
      'IBV_QP_STATE, IBV_QP_SQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_TIMEOUT',
    ],
  ],
};
/** The same way for all: to drain the send queue, back, and out. */
const ONWARD = [
  ['IBV_QPS_SQD', 'IBV_QP_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY'],
  ['IBV_QPS_RTS', 'IBV_QP_STATE, IBV_QP_CUR_STATE'],
  ['IBV_QPS_ERR', 'IBV_QP_STATE'],
  ['IBV_QPS_RESET', 'IBV_QP_STATE'],
];
const bits = (names) => names.split(', ').reduce((mask, name) => mask | CONSTANTS[name], 0);

for (const [type, table] of Object.entries(TABLES)) {
  const cap = { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1 };
  const qp = await v.ibv_create_qp(pd, { send_cq: cq, recv_cq: cq, cap, qp_type: CONSTANTS[type] });
  if (!qp) throw v.lastError();
  console.log(`\n${type}`);
  for (const [state, names] of [...table, ...ONWARD]) {
    const attr = {
      qp_state: CONSTANTS[state],
      cur_qp_state: qp.state,
      en_sqd_async_notify: 1,
      pkey_index: 0,
      port_num: 1,
      qkey: 0x11111111,
      qp_access_flags: v.IBV_ACCESS_REMOTE_WRITE | v.IBV_ACCESS_REMOTE_READ,
      // To itself: it is as good a peer as any.
      ah_attr: { is_global: 1, grh: { dgid: gid, sgid_index: 0, hop_limit: 1 }, port_num: 1 },
      path_mtu: v.IBV_MTU_1024,
      dest_qp_num: qp.qp_num,
      rq_psn: 3185,
      sq_psn: 3185,
      max_dest_rd_atomic: 1,
      max_rd_atomic: 1,
      min_rnr_timer: 12,
      timeout: 14,
      retry_cnt: 7,
      rnr_retry: 7,
    };
    // Each of them is required: without it, the call fails and names it.
    if (table.some((row) => row[1] === names)) {
      for (const name of names.split(', ').slice(1)) {
        if ((await v.ibv_modify_qp(qp, attr, bits(names) & ~CONSTANTS[name])) === 0)
          throw new Error(`without ${name}`);
      }
    }
    if ((await v.ibv_modify_qp(qp, attr, bits(names))) !== 0) throw v.lastError();

    const found = {};
    if ((await v.ibv_query_qp(qp, found, v.IBV_QP_STATE, {})) !== 0) throw v.lastError();
    if (found.qp_state !== CONSTANTS[state]) throw new Error(`in ${found.qp_state}`);
    const valid = Object.keys(found).filter(
      (name) => found[name] !== undefined && !/^(cur_)?qp_state$/.test(name),
    );
    console.log(`${state}: ${valid.join(' ')}`);
  }
  // It was drained at once, and raised its event.
  const event = {};
  if (await v.ibv_get_async_event(context, event)) throw v.lastError();
  console.log(v.ibv_event_type_str(event.event_type), event.element.qp === qp);
  v.ibv_ack_async_event(event);
  await v.ibv_destroy_qp(qp);
}

const raw = { send_cq: cq, recv_cq: cq, cap: {}, qp_type: v.IBV_QPT_RAW_PACKET };
// It needs CAP_NET_RAW.
const rawQp = await v.ibv_create_qp(pd, raw);
console.log(`\nIBV_QPT_RAW_PACKET: ${rawQp ? 'created' : v.strerror(v.errno)}`);
for (const [qp_state, mask] of [
  [v.IBV_QPS_INIT, v.IBV_QP_STATE | v.IBV_QP_PORT],
  [v.IBV_QPS_RTR, v.IBV_QP_STATE],
  [v.IBV_QPS_RTS, v.IBV_QP_STATE],
]) {
  if (rawQp && (await v.ibv_modify_qp(rawQp, { qp_state, port_num: 1 }, mask))) throw v.lastError();
}
await v.ibv_close_device(context);
