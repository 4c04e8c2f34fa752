// The program of ibv_query_qp(3), line by line with the ibv_… functions: reads the attributes of a queue pair.
import {
  errno,
  IBV_QP_CAP,
  IBV_QP_STATE,
  IBV_QPS_RESET,
  IBV_QPT_RC,
  ibv_alloc_pd,
  ibv_close_device,
  ibv_create_cq,
  ibv_create_qp,
  ibv_dealloc_pd,
  ibv_destroy_cq,
  ibv_destroy_qp,
  ibv_get_device_list,
  ibv_open_device,
  ibv_query_qp,
  strerror,
} from 'node-roce/ibverbs';

const dev = ibv_get_device_list().find((device) => device.name === 'lo');
const context = await ibv_open_device(dev, { address: '127.0.47.1' });
if (!context) {
  console.error(`Failed to open the device: ${strerror(errno)}`);
  process.exit(1);
}
const pd = await ibv_alloc_pd(context);
const cq = await ibv_create_cq(context, 16, null, null, 0);
const qp_init_attr = {
  send_cq: cq,
  recv_cq: cq,
  cap: { max_send_wr: 10, max_recv_wr: 10, max_send_sge: 1, max_recv_sge: 1 },
  qp_type: IBV_QPT_RC,
};
const qp = await ibv_create_qp(pd, qp_init_attr);
if (!qp) {
  console.error(`Failed to create the QP: ${strerror(errno)}`);
  process.exit(1);
}
// "These values will be greater than or equal to the values requested."
console.log(`send requests: ${qp_init_attr.cap.max_send_wr >= 10 ? 'at least 10' : 'fewer than 10'}`);

const attr = {};
const init_attr = {};
if (await ibv_query_qp(qp, attr, IBV_QP_STATE | IBV_QP_CAP, init_attr)) {
  console.error('Failed to query QP state');
  process.exit(1);
}
console.log(`state: ${attr.qp_state === IBV_QPS_RESET ? 'IBV_QPS_RESET' : attr.qp_state}`);
console.log(`type: ${init_attr.qp_type === IBV_QPT_RC ? 'IBV_QPT_RC' : init_attr.qp_type}`);
console.log(`the completion queues are its own: ${init_attr.send_cq === cq && init_attr.recv_cq === cq}`);
console.log(`the same sizes: ${JSON.stringify(attr.cap) === JSON.stringify(init_attr.cap)}`);

// In this order: what is in use can not go.
if ((await ibv_destroy_cq(cq)) !== 0) console.log(`the CQ is in use: ${strerror(errno)}`);
const ended = [await ibv_destroy_qp(qp), await ibv_destroy_cq(cq), await ibv_dealloc_pd(pd)];
console.log(`destroyed: ${[...ended, await ibv_close_device(context)]}`);
