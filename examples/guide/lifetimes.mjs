// The verbs by hand: which object contains which, and in which order they are closed.
import { openDevice } from 'node-roce';

const device = await openDevice({ address: '127.0.56.1' });
const pd = await device.allocPd();
const cq = await device.createCq(64);
const region = await pd.registerMr(new Uint8Array(4096));
const qp = await pd.createQp({ sendCq: cq });

// While another object uses an object, it cannot be destroyed.
for (const [name, end] of [
  ['completion queue', () => cq.destroy()],
  ['protection domain', () => pd.dealloc()],
]) {
  await end().catch((error) => console.log(`${name}: ${error.code}`));
}

// In this order, every call succeeds.
await qp.close();
await region.deregister();
await cq.destroy();
await pd.dealloc();
// Closing the device also ends all objects that are left.
await device.close();
console.log('closed');
