from tensorc_dsl import TschedError, handlers, load

space = load("tiles.tsched")["small"].space
try:
    handlers.replay(space, {})()
except TschedError as problem:
    print(problem)
