// The verbs by hand: what is made in what, and the order in which it goes.
import { openDevice } from 'node-roce';

const device = await openDevice({ address: '127.0.56.1' });
const pd = await device.allocPd();
const cq = await device.createCq(64);
const region = await pd.registerMr(new Uint8Array(4096));
const qp = await pd.createQp({ sendCq: cq });

// An object that another one uses is busy.
for (const [name, end] of [
  ['completion queue', () => cq.destroy()],
  ['protection domain', () => pd.dealloc()],
]) {
  await end().catch((error) => console.log(`${name}: ${error.code}`));
}

// In this order nothing is.
await qp.close();
await region.deregister();
await cq.destroy();
await pd.dealloc();
// Closing the device ends all that is left of it.
await device.close();
console.log('closed');
