"""What sessions do with files, part by part, in the form of `parts`."""

from __future__ import annotations

from tests.random_programs.parts import parts_in

_TEXT = """
# save and load parameters 2
net.save_parameters(run.path($file)${|, deduplicate=True})
for p in net.collect_params().values():
    p.set_data(p.data() * 0 + 0.25)
run.see('y', $call)
net.load_parameters(run.path($file))
run.see('y', $call)

# an archive opened without the code 2
y = $call
net = run.replaced(net, lambda: run.reopened(net))
net.collect_params().zero_grad()
run.hybridize(net)
run.see('y', $call)
$grads

# an archive loaded into the net 1
y = $call
net.save(run.path('net.hlab'))
net.load(run.path('net.hlab'))
run.see('y', $call)

# a copy 1
net = run.copied(net)
run.see('y', $call)

# pickled parameters 1
for p in net.collect_params().values():
    p.set_data(pickle.loads(pickle.dumps(p.data())))
run.see('y', $call)

# an archive whose graphs win over the code 2
y = $call
run.pinned(net)
run.see('y', $call)
with autograd.record():
    y = $call
autograd.backward($heads)
run.see('y', y)
$grads

# exported and imported 3
flat = run.exported(net, $arguments)
run.see('y', flat())
with autograd.record():
    y = flat()
autograd.backward($heads)
for i, p in enumerate(flat.parameters):
    run.see_parameter(f'parameter {i}', p)
$grads

# states of a trainer 2
trainer = gluon.Trainer(net.collect_params(), $optimizer)
for i in range(3):
    with autograd.record():
        loss = run.total($call)
    loss.backward()
    if i == 1:
        trainer.save_states(run.path('trainer.states'))
    if i == 2:
        trainer = gluon.Trainer(net.collect_params(), $optimizer)
        trainer.load_states(run.path('trainer.states'))
    trainer.step(2, ignore_stale_grad=True)
run.see_net(net)

# training goes on from an archive 2
trainer = gluon.Trainer(net.collect_params(), $optimizer)
for i in range(4):
    with autograd.record():
        loss = run.total($call)
    loss.backward()
    trainer.step(2, ignore_stale_grad=True)
    if i == 1:
        net.save(run.path('net.hlab'), trainer=trainer)
    if i == 2:
        net.load(run.path('net.hlab'), trainer=trainer)
        trainer.set_learning_rate(0.02)
    run.see('loss', loss)
run.see_net(net)

# arrays in a file 1
y = run.leaves($call)
nd.save(run.path($file), y)
run.see('y', nd.load(run.path($file)))
"""

FILES = parts_in(_TEXT)
