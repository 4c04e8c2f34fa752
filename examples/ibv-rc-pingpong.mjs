// The ibv_rc_pingpong of rdma-core, with the ibv_… functions; it also plays with the original (--events, -g 0).
//
//   node ibv-rc-pingpong.mjs 127.0.0.1              server
//   node ibv-rc-pingpong.mjs 127.0.0.2 127.0.0.1    client
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import * as v from 'node-roce/ibverbs';

const [address, servername] = process.argv.slice(2);
if (!address) {
  console.error('usage: ibv-rc-pingpong.mjs ADDRESS [SERVER]');
  process.exit(2);
}
const PORT = Number(process.env.PORT ?? 18515);
const SIZE = 4096;
const RX_DEPTH = 500;
const ITERS = 1000;
const RECV_WRID = 1n;
const SEND_WRID = 2n;

const die = (what) => {
  console.error(`Couldn't ${what}: ${v.strerror(v.errno)}\n${v.lastError()?.message}`);
  process.exit(1);
};

const ib_dev = v.ibv_get_device_list().find((dev) => dev.interface.addresses.length > 0);
const context = (await v.ibv_open_device(ib_dev, { address })) ?? die('get context');
const channel = (await v.ibv_create_comp_channel(context)) ?? die('create completion channel');
const pd = (await v.ibv_alloc_pd(context)) ?? die('allocate PD');
const buf = new Uint8Array(SIZE).fill(servername ? 0x7c : 0x7b);
const mr = (await v.ibv_reg_mr(pd, buf, SIZE, v.IBV_ACCESS_LOCAL_WRITE)) ?? die('register MR');
const cq = (await v.ibv_create_cq(context, RX_DEPTH + 1, null, channel, 0)) ?? die('create CQ');
const init_attr = {
  send_cq: cq,
  recv_cq: cq,
  cap: { max_send_wr: 1, max_recv_wr: RX_DEPTH, max_send_sge: 1, max_recv_sge: 1 },
  qp_type: v.IBV_QPT_RC,
};
const qp = (await v.ibv_create_qp(pd, init_attr)) ?? die('create QP');

let attr = { qp_state: v.IBV_QPS_INIT, pkey_index: 0, port_num: 1, qp_access_flags: 0 };
const INIT = v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_ACCESS_FLAGS;
if (await v.ibv_modify_qp(qp, attr, INIT)) die('modify QP to INIT');

const post_recv = (n) => {
  const wr = { wr_id: RECV_WRID, sg_list: [{ addr: buf, length: SIZE, lkey: mr.lkey }], num_sge: 1 };
  let i = 0;
  while (i < n && v.ibv_post_recv(qp, wr) === 0) i++;
  return i;
};
const post_send = () => {
  const list = [{ addr: buf, length: SIZE, lkey: mr.lkey }];
  const wr = { wr_id: SEND_WRID, sg_list: list, num_sge: 1, opcode: v.IBV_WR_SEND };
  return v.ibv_post_send(qp, { ...wr, send_flags: v.IBV_SEND_SIGNALED });
};

let routs = post_recv(RX_DEPTH);
if (routs < RX_DEPTH) die(`post receive (${routs})`);
if (v.ibv_req_notify_cq(cq, 0)) die('request CQ notification');

const my_gid = {};
if (await v.ibv_query_gid(context, 1, 0, my_gid)) die('read sgid of index 0');
const my_psn = Math.floor(Math.random() * 0x1000000);
const hex = (number, digits) => number.toString(16).padStart(digits, '0');

/** To RTR and RTS, connected to `lid:qpn:psn:gid`. */
async function connect_ctx(dest) {
  const [, qpn, psn, gid] = dest.split(':');
  const dgid = { raw: Uint8Array.from(Buffer.from(gid.slice(0, 32), 'hex')) };
  attr = {
    qp_state: v.IBV_QPS_RTR,
    path_mtu: v.IBV_MTU_1024,
    dest_qp_num: Number.parseInt(qpn, 16),
    rq_psn: Number.parseInt(psn, 16),
    max_dest_rd_atomic: 1,
    min_rnr_timer: 12,
    ah_attr: { is_global: 1, grh: { hop_limit: 1, dgid, sgid_index: 0 }, port_num: 1 },
  };
  const path = v.IBV_QP_AV | v.IBV_QP_PATH_MTU | v.IBV_QP_DEST_QPN | v.IBV_QP_RQ_PSN;
  const rtr = v.IBV_QP_STATE | path | v.IBV_QP_MAX_DEST_RD_ATOMIC | v.IBV_QP_MIN_RNR_TIMER;
  if (await v.ibv_modify_qp(qp, attr, rtr)) die('modify QP to RTR');
  attr = {
    qp_state: v.IBV_QPS_RTS,
    timeout: 14,
    retry_cnt: 7,
    rnr_retry: 7,
    sq_psn: my_psn,
    max_rd_atomic: 1,
  };
  const retries = v.IBV_QP_TIMEOUT | v.IBV_QP_RETRY_CNT | v.IBV_QP_RNR_RETRY;
  const rts = v.IBV_QP_STATE | retries | v.IBV_QP_SQ_PSN | v.IBV_QP_MAX_QP_RD_ATOMIC;
  if (await v.ibv_modify_qp(qp, attr, rts)) die('modify QP to RTS');
}

/** The bytes that come next over TCP. */
async function read(socket, bytes) {
  for (;;) {
    const data = socket.read(bytes);
    if (data) return data.toString('latin1');
    await once(socket, 'readable');
  }
}

const mine = `0000:${hex(qp.qp_num, 6)}:${hex(my_psn, 6)}:${Buffer.from(my_gid.raw).toString('hex')}\0`;
let socket;
if (servername) {
  socket = connect(PORT, servername);
  await once(socket, 'connect');
  socket.write(mine);
  await connect_ctx(await read(socket, mine.length));
  socket.write('done\0');
} else {
  const server = createServer().listen(PORT, address);
  [socket] = await once(server, 'connection');
  server.close();
  await connect_ctx(await read(socket, mine.length));
  socket.write(mine);
  await read(socket, 5);
}
socket.end();

if (servername && post_send()) die('post send');
let [rcnt, scnt, num_cq_events] = [0, 0, 0];
let pending = servername ? SEND_WRID | RECV_WRID : RECV_WRID;
const wc = [];
while (rcnt < ITERS || scnt < ITERS) {
  const ev_cq = [];
  const ev_ctx = [];
  if (await v.ibv_get_cq_event(channel, ev_cq, ev_ctx)) die('get cq_event');
  num_cq_events++;
  if (ev_cq[0] !== cq) die('find the CQ of the event');
  if (v.ibv_req_notify_cq(cq, 0)) die('request CQ notification');
  for (let ne = v.ibv_poll_cq(cq, 2, wc); ne !== 0; ne = v.ibv_poll_cq(cq, 2, wc)) {
    if (ne < 0) die('poll CQ');
    for (const { status, wr_id } of wc.slice(0, ne)) {
      if (status !== v.IBV_WC_SUCCESS) die(`go on: ${v.ibv_wc_status_str(status)} of wr_id ${wr_id}`);
      if (wr_id === SEND_WRID) scnt++;
      else {
        rcnt++;
        if (--routs <= 1) routs += post_recv(RX_DEPTH - routs);
      }
      pending &= ~wr_id;
      if (scnt < ITERS && !pending) {
        if (post_send()) die('post send');
        pending = RECV_WRID | SEND_WRID;
      }
    }
  }
}
console.log(`${scnt} sent, ${rcnt} received; ${num_cq_events > 0 ? 'by events' : 'without an event'}`);

v.ibv_ack_cq_events(cq, num_cq_events);
if (await v.ibv_destroy_qp(qp)) die('destroy QP');
if (await v.ibv_destroy_cq(cq)) die('destroy CQ');
if (await v.ibv_dereg_mr(mr)) die('deregister MR');
if (await v.ibv_dealloc_pd(pd)) die('deallocate PD');
if (await v.ibv_destroy_comp_channel(channel)) die('destroy completion channel');
if (await v.ibv_close_device(context)) die('release context');
